"""Running experiments from Python, on a cluster that replays a run (results/fakes.py)."""
import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import simulator
from results.fakes import FakeCluster, small_run
from simulator import api
from simulator.errors import InputErrors
from simulator.results.interrupts import Aborted

ROOT = Path(simulator.__file__).parents[1]

EXPERIMENT = """
name = "small"
seed = 42
[model]
name = "llama-3.1-8b"
[hardware]
name = "h100-sxm-80gb"
[latency]
backend = "linear"
[workload]
type = "synthetic"
num_requests = 6
arrival = {process = "constant", rate_per_s = 1.0}
prompt_tokens = {distribution = "constant", tokens = 10}
output_tokens = {distribution = "constant", tokens = 10}
[slo]
ttft_ms = 25.0
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Write an experiment file and let it run on the fake cluster."""
    monkeypatch.setattr(api.assemble, "prepare", lambda experiment, *_: api.assemble.Prepared(
        experiment, small_run().workload, (), (), ()))
    use_cluster(monkeypatch)
    path = tmp_path / "small.toml"
    path.write_text(EXPERIMENT)
    return path


@pytest.fixture
def experiment(file):
    return api.load_experiment(file)


def use_cluster(monkeypatch, **options):
    """Let experiments run on a fake cluster with these options."""

    def build(prepared, sink, monitor, threads):
        return FakeCluster(small_run(), sink, monitor, **options)

    monkeypatch.setattr(api.assemble, "build", build)


def test_a_run_in_memory_writes_nothing(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    result = simulator.run(file, {"output.token_times": True})

    assert os.listdir(tmp_path) == ["small.toml"]
    assert result.directory is None
    assert result.summary["requests"]["completed"] == 2
    assert result.requests["completed_ns"].tolist() == [40_000_000, 30_000_000, -1, -1, -1, -1]
    assert result.iterations["context_tokens"].tolist() == [100, 101, 102]
    assert result.token_times[0].tolist() == [0, 4, 5, 7, 7, 7, 7]
    assert repr(result) == "<Result 'small': 2 requests completed, complete>"


def test_written_results_are_the_same_as_those_in_memory(file, tmp_path):
    overrides = {"output.token_times": True}

    in_memory = simulator.run(file, overrides)
    written = simulator.run(file, overrides, out=tmp_path / "out")
    loaded = simulator.load_results(tmp_path / "out")

    for result in (written, loaded):
        assert result.summary == in_memory.summary
        assert result.labels == in_memory.labels
        assert result.requests.dtype == in_memory.requests.dtype
        assert np.array_equal(result.requests, in_memory.requests)
        assert np.array_equal(result.iterations, in_memory.iterations)
        assert all(map(np.array_equal, result.token_times, in_memory.token_times))
        assert result.directory == tmp_path / "out"


def test_what_was_not_recorded_is_named(file):
    result = simulator.run(file, {"output.iterations": False})

    with pytest.raises(LookupError, match=r"\[output\] iterations was false"):
        _ = result.iterations


def test_all_files_but_provenance_are_identical_in_a_second_run(file, tmp_path):
    overrides = {"output.chrome_trace": True, "output.token_times": True}
    for name in ("one", "other"):
        simulator.run(file, overrides, out=tmp_path / name)

    files = sorted(os.listdir(tmp_path / "one"))
    assert files == ["provenance.json", "resolved.toml", "results.h5", "summary.json", "trace.json"]
    for name in files:
        if name != "provenance.json":
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_provenance_has_the_times_of_all_phases(experiment, tmp_path):
    api.run_experiment(experiment, tmp_path / "out", quiet=True)

    provenance = json.loads((tmp_path / "out" / "provenance.json").read_text())
    assert list(provenance["timings_s"]) == ["start", "load", "simulate", "write"]
    assert all(seconds >= 0 for seconds in provenance["timings_s"].values())


def test_the_resolved_experiment_is_written(experiment, tmp_path):
    api.run_experiment(experiment, tmp_path / "out", quiet=True)

    resolved = tomllib.loads((tmp_path / "out" / "resolved.toml").read_text())
    assert (resolved["seed"], resolved["slo"]) == (42, {"ttft_ms": 25.0})


def test_results_go_where_the_experiment_says(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    default = api.run_experiment(api.load_experiment(file), quiet=True)
    chosen = api.run_experiment(api.load_experiment(file, {"output.directory": "here"}), quiet=True)

    assert default.directory.resolve() == tmp_path / "results" / "small"
    assert chosen.directory.resolve() == tmp_path / "here"


def test_complete_results_are_replaced_only_on_request(experiment, tmp_path):
    api.run_experiment(experiment, tmp_path / "out", quiet=True)

    with pytest.raises(InputErrors, match="complete results exist"):
        api.run_experiment(experiment, tmp_path / "out", quiet=True)

    api.run_experiment(experiment, tmp_path / "out", overwrite=True, quiet=True)
    assert sorted(os.listdir(tmp_path)) == ["out", "small.toml"]


@pytest.mark.usefixtures("heeded_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_leaves_valid_results_marked_incomplete(experiment, tmp_path, monkeypatch, number):
    use_cluster(monkeypatch, before_monitor=lambda: os.kill(os.getpid(), number))

    result = api.run_experiment(experiment, tmp_path / "out", quiet=True)

    assert result.interrupted_by == number
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["complete"] is False
    assert len(result.iterations) == 2      # one chunk of the fake cluster


@pytest.mark.usefixtures("heeded_signals")
@pytest.mark.parametrize("step", ["summary_of", "provenance"])
def test_a_signal_after_the_simulation_changes_nothing(experiment, tmp_path, monkeypatch, step):
    do = getattr(api, step)

    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        return do(*arguments)

    monkeypatch.setattr(api, step, interrupted)

    result = api.run_experiment(experiment, tmp_path / "out", quiet=True)

    assert result.interrupted_by is None
    assert result.summary["complete"] is True


@pytest.mark.usefixtures("heeded_signals")
def test_a_second_signal_leaves_nothing(experiment, tmp_path, monkeypatch):

    def interrupt_twice():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    use_cluster(monkeypatch, before_monitor=interrupt_twice)

    with pytest.raises(Aborted):
        api.run_experiment(experiment, tmp_path / "out", quiet=True)

    assert os.listdir(tmp_path) == ["small.toml"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("heeded_signals")
def test_interrupting_a_run_from_python_raises_as_usual(file, tmp_path, monkeypatch):
    use_cluster(monkeypatch, before_monitor=lambda: os.kill(os.getpid(), signal.SIGINT))

    with pytest.raises(KeyboardInterrupt):
        simulator.run(file, out=tmp_path / "out")

    assert os.listdir(tmp_path) == ["small.toml"]


def test_a_fault_of_the_engine_leaves_nothing(experiment, tmp_path, monkeypatch):

    def fail():
        raise MemoryError

    use_cluster(monkeypatch, before_monitor=fail)

    with pytest.raises(MemoryError):
        api.run_experiment(experiment, tmp_path / "a" / "out", quiet=True)

    assert not (tmp_path / "a" / "out").exists()
    assert os.listdir(tmp_path / "a") == []


def test_an_experiment_that_cannot_be_built_makes_no_folder(experiment, tmp_path, monkeypatch):

    def refuse(*_):
        raise InputErrors(["does not fit"])

    monkeypatch.setattr(api.assemble, "build", refuse)

    with pytest.raises(InputErrors):
        api.run_experiment(experiment, tmp_path / "a" / "out", quiet=True)

    assert os.listdir(tmp_path) == ["small.toml"]


def test_results_go_into_an_empty_current_folder(experiment, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    result = api.run_experiment(experiment, ".", quiet=True)

    assert result.directory == tmp_path / "here"
    assert "summary.json" in os.listdir()
    assert len(result.requests) == 6


def test_overrides_may_be_none_or_one_text(file):
    assert simulator.run(file, None).summary["seed"] == 42
    assert simulator.run(file, "seed=43").summary["seed"] == 43


def test_a_resolved_experiment_takes_no_overrides(experiment):
    with pytest.raises(ValueError, match="overrides apply to a file"):
        simulator.run(experiment, {"seed": 1})


def test_loading_what_is_not_there_names_it(tmp_path):
    with pytest.raises(InputErrors, match=r"nothing: no such folder"):
        simulator.load_results(tmp_path / "nothing")


def test_importing_the_package_loads_no_array_library():
    code = "import sys, simulator; print('numpy' in sys.modules, simulator.__version__ != '')"

    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)

    assert found.stdout == "False True\n"


def test_the_api_alone_loads_neither_hdf5_nor_the_bar():
    code = "import sys, simulator.api; print('h5py' in sys.modules, 'tqdm' in sys.modules)"

    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)

    assert found.stdout == "False False\n"


def test_unknown_names_of_the_package_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        _ = simulator.rum
