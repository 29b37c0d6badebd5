"""The same recorded runs through the front door: a trace and an experiment file in, results.h5 and summary.json out."""
import copy
import os
import subprocess
import sys

import pytest

import simulator
from support import goldens
from support.files import WrittenResults, write_experiment
from support.files_log import differences

STRIDE = int(os.environ.get("SIM_PARITY_STRIDE", "1"))         # k: every k-th case only, for a quick look
CASES = [path for path in goldens.case_paths() if not goldens.read_scenario(path)["options"].get("kv_connector")]
BY_NAME = {goldens.case_name(path): path for path in CASES}
BY_COMMAND = ["06_kv_preempt_apc", "23_multi_turn", "fuzz/f086"]

pytestmark = pytest.mark.skipif(not CASES, reason=f"no recorded runs under {goldens.GOLDENS}")


def write(path, log, folder):
    return write_experiment(goldens.read_scenario(path), folder, goldens.late_arrivals(log))


def assert_agree(log, directory):
    found = list(differences(log, WrittenResults(directory)))
    assert not found, "\n".join([f"{len(found)} differences", *found[:10]])


@pytest.mark.parametrize("path", CASES[::STRIDE], ids=goldens.case_name)
def test_written_results_agree_with_the_recorded_run(path, tmp_path):
    log = goldens.read_log(path)
    simulator.run(write(path, log, tmp_path), out=tmp_path / "out")
    assert_agree(log, tmp_path / "out")


@pytest.mark.parametrize("name", [name for name in BY_COMMAND if name in BY_NAME])
def test_the_command_line_writes_the_same(name, tmp_path):
    log = goldens.read_log(BY_NAME[name])
    experiment = write(BY_NAME[name], log, tmp_path)
    done = subprocess.run([sys.executable, "-m", "simulator", experiment, "--out", tmp_path / "out"],
                          cwd=os.path.dirname(os.path.dirname(simulator.__file__)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("warning: ") for line in done.stderr.splitlines())     # f086: the livelock
    assert_agree(log, tmp_path / "out")


@pytest.fixture(scope="module")
def recorded_and_ours(tmp_path_factory):
    path = BY_NAME["06_kv_preempt_apc"]
    log = goldens.read_log(path)
    folder = tmp_path_factory.mktemp("case")
    simulator.run(write(path, log, folder), out=folder / "out")
    return log, WrittenResults(folder / "out")


@pytest.mark.parametrize(("field", "change"), [
    ("t", 1e-6), ("dur", 1e-6), ("total_tokens", 1), ("free_blocks", 1), ("running", ["r0"]), ("waiting", ["r0"]),
    ("preempted", ["r0"]), ("scheduled", [["r0", 1]])])
def test_a_change_of_one_iteration_is_found(field, change, recorded_and_ours):
    log, ours = copy.deepcopy(recorded_and_ours[0]), recorded_and_ours[1]
    log["steps"][20][field] += change
    assert list(differences(log, ours))


@pytest.mark.parametrize(("field", "change"), [
    ("first_scheduled", 1e-6), ("first_token", 1e-6), ("finish", 1e-6), ("n_out", 1), ("cached_tokens", 1),
    ("preemptions", 1), ("token_times", [9.0])])
def test_a_change_of_one_request_is_found(field, change, recorded_and_ours):
    log, ours = copy.deepcopy(recorded_and_ours[0]), recorded_and_ours[1]
    log["requests"][5][field] += change
    assert list(differences(log, ours))
