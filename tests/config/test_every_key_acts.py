"""Each key of the experiment file changes results, or is refused: nothing is accepted that does not act.

The entries stand in support/every_key_*.py: two values of a key, and a small experiment in which they differ. A new
key needs one.
"""
import copy
import re
from pathlib import Path

import h5py
import pytest
import tomli_w

import simulator
from simulator import cli
from simulator.errors import InputErrors
from support import every_key_elsewhere as elsewhere
from support.every_key import ABSENT, BASE, OF_POOLS, Case, all_keys, outcome, put, read, with_value, write_trace
from support.every_key_clients import CLIENTS
from support.every_key_costs import COSTS
from support.every_key_encoders import ENCODERS
from support.every_key_hand_over import HAND_OVER
from support.every_key_latency import LATENCY, measured
from support.every_key_llumnix import LLUMNIX
from support.every_key_planners import PLANNERS
from support.every_key_policies import POLICIES, recorded
from support.every_key_programs import PROGRAMS
from support.every_key_routers import ROUTERS
from support.every_key_sections import SECTIONS
from support.every_key_vidur import VIDUR
from support.every_key_workloads import FILE_KEYS

TESTS = Path(__file__).parents[1]
CASES = (SECTIONS | LATENCY | POLICIES | LLUMNIX | CLIENTS | HAND_OVER | ENCODERS | VIDUR | COSTS | PROGRAMS
         | PLANNERS | ROUTERS)
OF_FILES = ("collective:table.files", "latency:operators.path", "latency:operators.memory_efficiency",
            "latency:operators.kernel_latency_us", "latency:operators.missing", "trace_format:mooncake.block_size",
            *FILE_KEYS)
# A pool's tables are laid over the experiment's: keys that one of two pools alone may say.
OF_ALL_POOLS = ("model.config", "latency.uncertainty")      # or model.name; tests/test_uncertainty.py: all or none
POOLED = [key for key in SECTIONS if key.split(".")[0] in OF_POOLS and not key.startswith(OF_ALL_POOLS)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder for what experiments read, and what they keep between runs."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("keys")
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield folder


@pytest.fixture(scope="module")
def base(folder):
    """Return a small busy cluster as plain data."""
    write_trace(folder / "requests.csv")
    data = copy.deepcopy(BASE)
    data["workload"]["path"] = str(folder / "requests.csv")
    return data


def check(base, key, case: Case):
    """Assert that the values of a case differ in what they lead to, or that the last one is refused."""
    if case.refused:
        with pytest.raises(InputErrors) as caught:
            outcome(with_value(base, key, case, case.values[-1]), case.looks)
        assert case.refused in str(caught.value)
        return
    first, second = (outcome(with_value(base, key, case, value), case.looks) for value in case.values)
    assert first != second, f"{case.values[0]} and {case.values[1]} lead to the same"


def test_every_key_has_an_entry():
    named = {*CASES, *OF_FILES, *elsewhere.shown_in(), *elsewhere.SAME, *elsewhere.FILES, *elsewhere.WAITING}
    keys = {key for key in all_keys() if not key.startswith(tuple(f"pools[].{table}." for table in OF_POOLS))}
    assert named == keys


@pytest.mark.parametrize("key", CASES)
def test_key_acts_or_is_refused(base, key):
    if key.startswith("latency:forest"):
        pytest.importorskip("sklearn", reason="scikit-learn is in the forest extra")
    check(base, key, CASES[key])


@pytest.mark.parametrize("key", OF_FILES)
def test_key_of_measured_files_acts_or_is_refused(base, folder, key):
    check(base, key, (measured(folder) | recorded(folder))[key])


@pytest.mark.parametrize(("file", "keys"), elsewhere.SHOWN_IN.items())
def test_key_that_is_shown_elsewhere_is_named_there(file, keys):
    text = (TESTS / file).read_text()
    assert [key for key in keys[1].split() if key.rpartition(".")[2] not in text] == []


@pytest.mark.parametrize("key", POOLED)
def test_key_of_the_second_pool_acts_or_is_refused(base, key):
    # both pools get requests in turn; what the second alone says must not be the first's
    case = SECTIONS[key]
    first = ABSENT if case.refused else case.values[0]
    both = with_value(base, key, case, first) | {"pools": [{"name": "a"}, {"name": "b"}]}
    changed = copy.deepcopy(both)
    put(changed, f"pools[1].{key}", case.values[-1])
    if case.refused:
        with pytest.raises(InputErrors, match=re.escape(case.refused)):
            outcome(changed, case.looks)
    else:
        assert outcome(both, case.looks) != outcome(changed, case.looks)


def test_runs_of_equal_iterations_give_the_same_at_once_and_one_by_one(base):
    case = Case((True, False), {}, "run", None)
    fast, slow = (outcome(with_value(base, "engine.fast_forward", case, value), "run") for value in case.values)
    assert fast == slow


@pytest.mark.parametrize(("key", "files"), [
    ("chrome_trace", {"trace.json"}), ("requests", set()), ("iterations", set()), ("token_times", set()),
    ("vidur_csv", {"request_metrics.csv", "batch_metrics.csv"})])
def test_key_of_what_is_written_changes_what_is_written(base, tmp_path, key, files):
    written = []
    for value in (False, True):
        data = copy.deepcopy(base)
        put(data, f"output.{key}", value)
        out = tmp_path / str(value)
        simulator.run(read(data), out=out)
        with h5py.File(out / "results.h5") as tables:
            names = []
            tables.visit(names.append)
        written.append({*names, *(path.name for path in out.iterdir())})
    assert written[1] - written[0]
    assert files <= written[1] - written[0]


def test_directory_of_the_results_is_where_they_lie(base, tmp_path):
    (tmp_path / "a.toml").write_text(tomli_w.dumps(base))
    assert cli.main([str(tmp_path / "a.toml"), "--quiet", "--set", f"output.directory={tmp_path}/there"]) == 0
    assert (tmp_path / "there" / "summary.json").exists()
