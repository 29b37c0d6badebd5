"""One workload under several experiments: the file, the runs, the table."""
import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import simulator
from simulator import cli
from simulator.assembly import requests
from simulator.errors import InputErrors
from simulator.study import compare, compare_command
from simulator.study.compare import METRICS, Measured, table
from simulator.study.compare_file import read_comparison
from simulator.workload import load as workload

ROOT = Path(__file__).parents[2]
BASE = """
[engine]
max_num_seqs = 8
max_model_len = 4096
num_gpu_blocks = 2000
[latency]
backend = "linear"
base_us = 5000.0
per_prefill_token_us = 20.0
[workload]
type = "synthetic"
num_requests = 40
arrival = {process = "poisson", rate_per_s = 10.0}
prompt_tokens = {distribution = "uniform", min = 10, max = 500}
output_tokens = {distribution = "constant", tokens = 20}
"""
TWO = """
base = "base.toml"
[[variants]]
name = "cheap"
[[variants]]
name = "dear"
latency = {base_us = 9000.0}
"""


@pytest.fixture
def write(tmp_path):
    """Write a comparison beside its base; return its path as text."""
    def write(text, base=BASE):
        (tmp_path / "base.toml").write_text(base)
        path = tmp_path / "comparison.toml"
        path.write_text(text)
        return str(path)
    return write


def faults(path, overrides=None):
    with pytest.raises(InputErrors) as caught:
        read_comparison(path, overrides)
    return [fault.removeprefix(f"{path}: ") for fault in caught.value.faults]


def test_variant_is_laid_over_the_base(write):
    experiments = read_comparison(write(TWO), {"latency.per_prefill_token_us": 7.0}).experiments
    assert list(experiments) == ["cheap", "dear"]
    priced = [(each.name, each.latency.parameters.base_us, each.latency.parameters.per_prefill_token_us)
              for each in experiments.values()]
    assert priced == [("cheap", 5000.0, 7.0), ("dear", 9000.0, 7.0)]


def test_variants_win_over_overrides_of_the_base(write):
    experiments = read_comparison(write(TWO), ["latency.base_us=1.0"]).experiments
    assert [each.latency.parameters.base_us for each in experiments.values()] == [1.0, 9000.0]


def test_other_backend_drops_the_keys_of_the_former(write):
    text = TWO + '[[variants]]\nname = "fitted"\nlatency = {backend = "blackbox", beta = [5000.0, 20.0, 0.0]}\n'
    assert read_comparison(write(text)).experiments["fitted"].latency.backend == "blackbox"


def test_paths_of_a_variant_are_relative_to_the_comparison(write, tmp_path):
    text = TWO + '[[variants]]\nname = "measured"\nlatency = {backend = "aicb", tables = "layers"}\n' \
                 'model = {name = "llama-3.1-8b"}\nhardware = {name = "h100-sxm-80gb"}\n'
    measured = read_comparison(write(text)).experiments["measured"]
    assert measured.latency.parameters.tables == str(tmp_path / "layers")


def test_all_faults_of_all_variants_come_at_once(write):
    text = TWO + """
[[variants]]
name = "cheap"
[[variants]]
name = "wrong"
seed = 3
latency = {base_u = 1.0}
[[variants]]
engine.max_num_seqs = 4
[[variants]]
name = "a/b"
"""
    assert faults(write(text)) == [
        'variants[2].name: "cheap" is the name of an earlier variant',
        "variants[4].name: missing; expected a text",
        "variant wrong: seed: is the same for all variants; the base says it",
        "variant wrong: latency.base_u: unknown key; did you mean base_us?",
        r'variant a/b: name: expected text matching ^\w[\w.+ -]{0,199}$, found "a/b"']


def test_fault_of_the_base_is_told_once_and_names_it(write, tmp_path):
    assert faults(write(TWO, BASE.replace("max_num_seqs", "max_num_seq"))) == [
        f"{tmp_path}/base.toml: engine.max_num_seq: unknown key; did you mean max_num_seqs?"]


@pytest.mark.parametrize("key", ["workload = {num_requests = 3}", "seed = 3", 'output = {directory = "x"}',
                                 "workload = 3", 'extends = "base.toml"'])
def test_what_makes_runs_comparable_cannot_vary(write, key):
    told = "workload.num_requests" if key.startswith("workload = {") else key.split()[0]
    assert faults(write(f"{TWO}{key}\n")) == [
        f"variant dear: {told}: is the same for all variants; the base says it"]


@pytest.mark.parametrize(("text", "told"), [
    ("seed = 3", ["no comparison: expected base, an experiment file, and tables [[variants]]; `simulator run` runs an "
                  "experiment"]),
    ("base = 3\nvariant = 3", [
        "variant: unknown key; did you mean variants?", "base: expected the path of an experiment file",
        "variants: expected tables [[variants]], each with a name"]),
    ('base = "base.toml"\nvariants = []', ["variants: expected tables [[variants]], each with a name"]),
    ('base = "base.toml"\n[[variants]]\nname = 3', ["variants[0].name: expected a text, found 3"]),
])
def test_what_is_no_comparison_is_refused(write, text, told):
    assert faults(write(text)) == told


def test_base_that_is_not_there_is_named(write):
    with pytest.raises(InputErrors, match=r"nowhere\.toml: No such file or directory"):
        read_comparison(write(TWO.replace("base.toml", "nowhere.toml")))


def test_variants_that_cannot_run_are_all_told_before_any_runs(write, tmp_path, capsys):
    text = TWO + """
[[variants]]
name = "large"
model = {name = "llama-3.1-405b"}
hardware = {name = "h100-sxm-80gb"}
latency = {backend = "blackbox"}
[[variants]]
name = "bare"
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
latency = {backend = "blackbox", coefficients = "blis"}
"""
    path = write(text)
    assert cli.main(["compare", path, "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert [line.split(": latency")[0] for line in told.err.splitlines()] == [
        f"{path}: variant large", f"{path}: variant bare"]
    assert not (tmp_path / "out").exists()


def test_table_shows_what_each_variant_gives_alone(write, tmp_path, capsys):
    assert cli.main(["compare", write(TWO), "--set", "seed=5"]) == 0
    told = capsys.readouterr()
    table, below = told.out.split("\n\n")
    rows = [line.split() for line in table.splitlines()]
    assert rows[0] == ["cheap", "dear"] and below.startswith("accuracy of linear: not compared")
    alone = [simulator.run(tmp_path / "base.toml", {"latency.base_us": base_us, "seed": 5}).summary
             for base_us in (5000.0, 9000.0)]
    shown = {" ".join(row[:-2]): row[-2:] for row in rows[1:]}
    assert shown["completed requests"] == ["40", "40"]
    assert shown["TTFT p99, ms"] == [f"{summary['ttft_ms']['p99']:,.2f}" for summary in alone]
    assert shown["iterations"] == [f"{summary['iterations']:,}" for summary in alone]
    assert list(shown) == list(METRICS.values())
    assert [line.split()[:2] for line in told.err.splitlines()] == [["1/2", "cheap"], ["2/2", "dear"]]     # wall times


def test_table_that_a_variant_alone_needs_is_missed_in_the_variant(write):
    text = TWO + '[[variants]]\nname = "bare"\nlatency = {backend = "trained_physics"}\n'
    assert faults(write(text)) == [
        f'variant bare: {table}: missing table; it is needed by latency.backend = "trained_physics"'
        for table in ("model", "hardware")]


def test_results_and_the_table_are_written(write, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["compare", write(TWO), "--quiet", "--out", str(out)]
    assert cli.main(command) == 0
    assert sorted(os.listdir(out)) == ["cheap", "comparison.json", "dear"]
    compared = json.loads((out / "comparison.json").read_text())["variants"]
    for name, metrics in compared.items():
        result = simulator.load_results(out / name)
        assert result.summary["name"] == name
        assert metrics["itl_ms.p50"] == result.summary["itl_ms"]["p50"]
        assert metrics.keys() == METRICS.keys()
    requests = [simulator.load_results(out / name).requests for name in compared]
    for column in ("arrival_ns", "prompt_tokens", "output_tokens"):
        assert (requests[0][column] == requests[1][column]).all()
    assert capsys.readouterr().err == ""

    first = (out / "comparison.json").read_bytes()
    assert cli.main(command) == 2
    assert capsys.readouterr().err.count("--overwrite replaces") == 3
    assert cli.main([*command, "--overwrite"]) == 0
    assert (out / "comparison.json").read_bytes() == first


TABLED = """
from pathlib import Path

from simulator.latency.python_model import PythonLatencyModel

class Tabled(PythonLatencyModel):
    reads_files = True

    @staticmethod
    def read(parameters, deployment):
        with Path("reads").open("a") as told:
            told.write("once")
        return 7000.0

    def __init__(self, parameters, deployment, reading):
        super().__init__(parameters, deployment)
        self.us = reading

    def batch_us(self, shape):
        return self.us
"""


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_what_a_backend_reads_is_read_once_for_all_variants(write, tmp_path, capsys, monkeypatch, jobs):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tabled.py").write_text(TABLED)
    before, _, after = BASE.partition("[latency]")
    path = write(TWO.replace("latency = {base_us = 9000.0}", "engine = {max_num_seqs = 4}"),
                 before + '[latency]\nbackend = "tabled:Tabled"\n[workload]' + after.partition("[workload]")[2])

    assert cli.main(["compare", path, "--jobs", jobs, "--quiet"]) == 0

    assert (tmp_path / "reads").read_text() == "once"
    alone = simulator.run(str(tmp_path / "base.toml")).summary["duration_s"]
    assert f"{alone:.2f}" in capsys.readouterr().out.split("duration, s")[1].split()
    assert (tmp_path / "reads").read_text() == "onceonce"


@pytest.mark.parametrize(("num_requests", "given", "expected"), [
    (99_999, [], 1), (100_000, [], 5), (40, ["--jobs", "3"], 3), (100_000, ["--jobs", "1"], 1)])
def test_as_many_variants_run_at_once_as_is_worth_it(write, monkeypatch, num_requests, given, expected):
    asked = []

    def measure(plan, out, overwrite, quiet, num_processes):
        asked.append(num_processes)
        return ((name, Measured(dict.fromkeys(METRICS), [], 0.0)) for name in plan.experiments)

    monkeypatch.setattr(compare_command, "measure", measure)
    monkeypatch.setattr(compare_command, "available_cores", lambda: 5)
    assert cli.main(["compare", write(TWO), "--quiet", "--set", f"workload.num_requests={num_requests}", *given]) == 0
    assert asked == [expected]


@pytest.mark.ci
@pytest.mark.slow
def test_several_processes_write_the_same_bytes(write, tmp_path, capsys):
    path = write(TWO + '[[variants]]\nname = "busy"\n[variants.engine]\nnum_gpu_blocks = 260\n')
    printed, written = [], []
    for jobs in ("1", "2", "8"):
        out = tmp_path / "out"
        assert cli.main(["compare", path, "--jobs", jobs, "--quiet", "--out", str(out), "--overwrite"]) == 0
        printed.append(capsys.readouterr().out)
        written.append({str(file.relative_to(out)): file.read_bytes() for file in sorted(out.rglob("*"))
                        if file.is_file() and file.name != "provenance.json"})
    assert printed[0].splitlines()[0].split() == ["cheap", "dear", "busy"]
    assert len(written[0]) == 3 * 3 + 1         # summary, tables and experiment of each
    assert printed == printed[:1] * 3 and written == written[:1] * 3


@pytest.mark.parametrize("jobs", ["0", "-1", "two"])
def test_that_many_processes_cannot_be(write, capsys, jobs):
    with pytest.raises(SystemExit):
        cli.main(["compare", write(TWO), "--jobs", jobs])
    assert f"--jobs: expected a whole number of at least 1, found {jobs!r}" in capsys.readouterr().err


BROKEN = """
from simulator.scheduling.python_scheduler import PythonScheduler

class Broken(PythonScheduler):
    def form_batch(self, batch, now_ns):
        raise ZeroDivisionError("nothing to share")
"""


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_variant_that_fails_is_named(write, tmp_path, capsys, jobs):
    (tmp_path / "broken.py").write_text(BROKEN)
    path = write(TWO + '[[variants]]\nname = "broken"\n[variants.engine]\nscheduler = "broken:Broken"\n')
    assert cli.main(["compare", path, "--jobs", jobs, "--set", 'engine={max_model_len=4096, num_gpu_blocks=2000}']) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith('variant broken: "broken:Broken", line 6 of ')
    assert told.endswith("raised ZeroDivisionError: nothing to share")


def test_fault_of_the_program_names_the_variant(write, capsys, monkeypatch):
    def run(order):
        raise RuntimeError(f"out of order in {order.experiment.name}")

    monkeypatch.setattr(compare.api, "run_ordered", run)
    assert cli.main(["compare", write(TWO), "--jobs", "1"]) == 1
    assert "fault of the program: RuntimeError: out of order in cheap; variant cheap\n" in capsys.readouterr().err


def test_metric_that_nothing_measured_is_a_dash():
    nothing, much = (Measured(dict.fromkeys(METRICS, value), [], 0.0) for value in (None, 1234))
    assert table({"a": nothing, "b": much}, {}).splitlines()[1].split()[-2:] == ["-", "1,234"]


def test_requests_are_read_once_and_served_unchanged_by_each_variant(write, monkeypatch):
    reads = []

    def load(section, seed, *others):
        reads.append(seed)
        return workload.load(section, seed, *others)

    monkeypatch.setattr(requests, "load", load)
    plan = compare.prepare(read_comparison(write(TWO)))
    untouched = plan.workload.requests.copy()
    dict(compare.measure(plan))
    assert len(reads) == 1
    assert (plan.workload.requests == untouched).all()


FORETOLD = """
base = "base.toml"
[[variants]]
name = "blind"
[[variants]]
name = "knows"
engine = {scheduler = "sjf_aging", max_num_seqs = 1}
workload = {output_knowledge = {predictor = "exact"}}
[[variants]]
name = "guesses"
engine = {scheduler = "sjf_aging", max_num_seqs = 1}
workload.output_knowledge = {predictor = "lognormal_error", error_sigma = 3.0}
[[variants]]
name = "blind_too"
engine = {max_num_seqs = 4}
"""
SPREAD = BASE.replace('{distribution = "constant", tokens = 20}', '{distribution = "uniform", min = 1, max = 60}')


def test_what_is_known_of_output_lengths_is_a_variants_own_affair(write):
    plan = compare.prepare(read_comparison(write(FORETOLD, SPREAD)))
    sent = {name: plan.requests_of(name) for name in plan.experiments}
    expected = {name: each.demands["expected_tokens"].tolist() for name, each in sent.items()}
    lengths = plan.workload.outcomes["output_tokens"].tolist()

    assert expected["blind"] == expected["blind_too"] == [-1] * 40
    assert expected["knows"] == lengths and len(set(lengths)) > 20
    assert -1 not in expected["guesses"] and expected["guesses"] != lengths
    for each in sent.values():                          # all else is the same, true lengths too
        assert (each.requests == plan.workload.requests).all()
        assert each.outcomes is plan.workload.outcomes
        for name in set(each.demands.dtype.names) - {"expected_tokens"}:
            assert (each.demands[name] == plan.workload.demands[name]).all()


def test_a_variant_that_knows_output_lengths_is_the_experiment_by_itself(write, tmp_path):
    plan = compare.prepare(read_comparison(write(FORETOLD, SPREAD)))
    results, others = dict(compare.measure(plan)), dict(compare.measure(plan, num_processes=2))
    alone = simulator.run(tmp_path / "base.toml", {
        "engine.scheduler": "sjf_aging", "engine.max_num_seqs": 1, "workload.output_knowledge.predictor": "exact"})

    assert results["knows"].metrics["ttft_ms.mean"] == alone.summary["ttft_ms"]["mean"]
    assert len({each.metrics["ttft_ms.mean"] for each in results.values()}) == 4
    assert {name: each.metrics for name, each in results.items()} == {
        name: each.metrics for name, each in others.items()}


def test_requests_are_read_once_for_each_way_to_foretell(write, monkeypatch):
    reads = []
    monkeypatch.setattr(requests, "load", lambda *given: reads.append(given) or workload.load(*given))
    compare.prepare(read_comparison(write(FORETOLD, SPREAD)))

    assert len(reads) == 3


def test_a_variant_that_is_foretold_what_nobody_reads_is_refused(write):
    text = FORETOLD.replace('engine = {scheduler = "sjf_aging", max_num_seqs = 1}', "", 1)

    assert [fault.partition(": expected")[0] for fault in faults(write(text, SPREAD))] == [
        "variant knows: workload.output_knowledge.predictor"]


def test_texts_of_sessions_fit_each_variant(write):
    talk = BASE.split("[workload]")[0] + """[workload]
type = "sessions"
num_sessions = 2
arrival = {process = "constant", rate_per_s = 10.0}
sessions.rounds = {distribution = "constant", value = 3}
sessions.first_tokens = {distribution = "constant", value = 100}
sessions.new_tokens = {distribution = "constant", value = 50}
sessions.output_tokens = {distribution = "constant", value = 3}
sessions.think_time_s = 0.005
"""
    path = write(TWO.replace("latency = {base_us = 9000.0}", "engine = {max_model_len = 200}"), talk)

    assert compare.prepare(read_comparison(path)).workload.requests["prompt_tokens"].tolist() == [100, 153] * 2


FOREST = """
[[variants]]
name = "forest"
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
latency = {backend = "forest", compute_file = "mlp.csv", attention_file = "attention.csv", cache_directory = "cache"}
"""


@pytest.fixture
def without_sklearn(tmp_path, monkeypatch):
    """Let scikit-learn not be there, but profiles that it would be needed for."""
    profile_operators = importlib.import_module("simulator.study.profile_operators")
    parser = argparse.ArgumentParser()
    profile_operators.add_arguments(parser)
    profile_operators.run(parser.parse_args(
        ["llama-3.1-8b", "h100-sxm-80gb", "--tokens", "1,64", "--batch-sizes", "1,8", "--contexts", "64,128",
         "--out", str(tmp_path)]))
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.model_selection", None)


def test_variant_that_lacks_an_extra_is_told_of_and_the_others_run(write, tmp_path, capsys, without_sklearn):
    capsys.readouterr()
    assert cli.main(["compare", write(TWO + FOREST), "--quiet", "--out", str(tmp_path / "out")]) == 0
    reason = "training forests needs scikit-learn: install it with pip install 'simulator[forest]'"
    told = capsys.readouterr().out.splitlines()
    assert told[0].split() == ["cheap", "dear"]
    assert told[len(METRICS) + 1] == f"forest is unavailable: {reason}"
    written = json.loads((tmp_path / "out/comparison.json").read_text())
    assert (list(written["variants"]), written["unavailable"]) == (["cheap", "dear"], {"forest": reason})
    assert sorted(os.listdir(tmp_path / "out")) == ["cheap", "comparison.json", "dear"]


def test_comparison_of_nothing_that_is_available_is_refused(write, capsys, without_sklearn):
    path = write(f'base = "base.toml"\n{FOREST}')
    capsys.readouterr()
    assert cli.main(["compare", path]) == 2
    assert capsys.readouterr().err.startswith(f"{path}: variant forest: training forests needs scikit-learn")


def test_each_command_knows_the_file_of_the_other(write, tmp_path, capsys):
    path = write(TWO)
    assert cli.main(["run", path]) == 2
    assert capsys.readouterr().err == f"{path}: a comparison, not an experiment; `simulator compare` runs it\n"
    assert cli.main(["compare", str(tmp_path / "base.toml")]) == 2
    assert capsys.readouterr().err.endswith("; `simulator run` runs an experiment\n")


def test_a_horizon_that_cuts_the_variants_is_told(write, capsys):
    # requests come 10 a second, the cheap one ends its first after 105 ms: within 1 ms none comes
    assert cli.main(["compare", write(TWO), "--set", "horizon_s=0.001", "--quiet"]) == 0

    told = " ".join(capsys.readouterr().err.split())
    assert ("warning: in 2 of 2 variants (cheap, dear): horizon_s cut the run at 0.001 s: of 40 requests 0 ran, 0 "
            "waited and 40 had not come; none is complete, so that latencies are blank and rates 0") in told


@pytest.mark.ci
@pytest.mark.usefixtures("heeded_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_signal_ends_it_and_shows_what_is_done(write, tmp_path, number, jobs):
    # The second variant has 300,000 requests to go when the signal comes, seconds of work.
    path = write(TWO.replace('"cheap"', '"cheap"\nhorizon_s = 1.0'))
    done = subprocess.Popen(
        [sys.executable, "-m", "simulator", "compare", path, "--set", "workload.num_requests=300000",
         "--set", "engine.fast_forward=false", "--out", str(tmp_path / "out"), "--jobs", jobs],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert done.stderr.readline().startswith("1/2 cheap")
    done.send_signal(number)
    out, err = done.communicate(timeout=60)
    assert done.returncode == 128 + number
    assert out.splitlines()[0].split() == ["cheap"]
    assert err.splitlines()[-1] == "interrupted after 1 of 2 variants"
    assert os.listdir(tmp_path / "out") == ["cheap"]


def test_costs_are_compared_where_accelerators_have_a_price(write, capsys):
    priced = TWO + '[[variants]]\nname = "priced"\npools = [{name = "all", cost_per_hour = 3600.0}]\n'
    assert cli.main(["compare", write(priced), "--quiet"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]

    duration_s, = (line[2:] for line in lines if line[:2] == ["duration,", "s"])
    cost, = (line[1:] for line in lines if line[:1] == ["cost"] and len(line) == 4)
    assert cost[:2] == ["-", "-"] and cost[2] == duration_s[2]      # a unit of money a second

    assert cli.main(["compare", write(TWO), "--quiet"]) == 0
    assert "cost" not in capsys.readouterr().out
