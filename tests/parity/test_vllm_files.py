"""The same recorded runs through the front door: a trace and an experiment file in, results.h5 and summary.json out."""
import copy
import os
import subprocess
import sys
from collections import Counter

import pytest

import simulator
from support import goldens
from support.files import WrittenResults, write_experiment
from support.files_log import differences
from support.vllm_scope import missing_in_files, plain_of_files

STEP = 5            # the decision that is changed
STRIDE = int(os.environ.get("SIM_PARITY_STRIDE", "1"))         # k: every k-th case only, for a quick look
CASES = goldens.case_paths()
APPLICABLE = [path for path in CASES if not missing_in_files(goldens.known_scenario(path))]
BY_COMMAND = APPLICABLE[::max(len(APPLICABLE) // 3, 1)][:3]


def census():
    """Return how many scenarios were recorded, and what those that are left out need."""
    return len(CASES), Counter(reason for path in CASES if (reason := missing_in_files(goldens.known_scenario(path))))


pytestmark = pytest.mark.skipif(not CASES, reason=f"no recorded runs under {goldens.GOLDENS}")


def write(path, log, folder):
    description = plain_of_files(goldens.read_scenario(path))
    return write_experiment(description, folder, goldens.late_arrivals(log, description))


def behind(log):
    """Return overrides that end a run where its recording was cut, if vLLM may end with an error behind it."""
    last, options = log["steps"][-1], log["options"]
    cuts_padding = 0 < options["long_prefill_token_threshold"] <= options["num_speculative_tokens"]
    return {"horizon_s": last.get("start", last["t"]) + last["dur"]} if cuts_padding and log["summary"]["cut"] else {}


def assert_agree(log, directory):
    found = list(differences(log, WrittenResults(directory)))
    assert not found, "\n".join([f"{len(found)} differences", *found[:10]])


@pytest.mark.parametrize("path", goldens.parameters(CASES[::STRIDE], missing_in_files))
def test_written_results_agree_with_the_recorded_run(path, tmp_path):
    log = goldens.read_log(path)
    simulator.run(write(path, log, tmp_path), behind(log), out=tmp_path / "out")
    assert_agree(log, tmp_path / "out")


@pytest.mark.parametrize("path", goldens.parameters(BY_COMMAND))
def test_the_command_line_writes_the_same(path, tmp_path):
    log = goldens.read_log(path)
    experiment = write(path, log, tmp_path)
    done = subprocess.run([sys.executable, "-m", "simulator", experiment, "--out", tmp_path / "out"],
                          cwd=os.path.dirname(os.path.dirname(simulator.__file__)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("warning: ") for line in done.stderr.splitlines())     # a livelock, for one
    assert_agree(log, tmp_path / "out")


# ---- the comparison itself: it finds every change

def has_everything(log):
    """Say whether a log has a decision and a request with every field that the changes below make."""
    return (len(log["steps"]) > STEP and not log["summary"]["cut"] and isinstance(log["steps"][STEP]["running"], list)
            and isinstance(log["steps"][STEP]["scheduled"], list) and rich_request(log) is not None)


def rich_request(log):
    completed = (request for request in log["requests"] if request["finish"] is not None)
    return next((request for request in completed if "token_times" in request), None)


@pytest.fixture(scope="module")
def recorded_and_ours(tmp_path_factory):
    candidates = ((path, goldens.read_log(path)) for path in APPLICABLE)
    path, log = next(((path, log) for path, log in candidates if has_everything(log)), (None, None))
    if path is None:
        pytest.skip("no log has all fields")
    folder = tmp_path_factory.mktemp("case")
    simulator.run(write(path, log, folder), out=folder / "out")
    return log, WrittenResults(folder / "out")


@pytest.mark.parametrize(("field", "change"), [
    ("t", 1e-6), ("dur", 1e-6), ("total_tokens", 1), ("free_blocks", 1), ("running", ["r0"]), ("waiting", ["r0"]),
    ("preempted", ["r0"]), ("scheduled", [["r0", 1]])])
def test_a_change_of_one_iteration_is_found(field, change, recorded_and_ours):
    log, ours = copy.deepcopy(recorded_and_ours[0]), recorded_and_ours[1]
    log["steps"][STEP][field] += change
    assert list(differences(log, ours))


@pytest.mark.parametrize(("field", "change"), [
    ("first_scheduled", 1e-6), ("first_token", 1e-6), ("finish", 1e-6), ("n_out", 1), ("cached_tokens", 1),
    ("preemptions", 1), ("token_times", [9.0])])
def test_a_change_of_one_request_is_found(field, change, recorded_and_ours):
    log, ours = copy.deepcopy(recorded_and_ours[0]), recorded_and_ours[1]
    rich_request(log)[field] += change
    assert list(differences(log, ours))
