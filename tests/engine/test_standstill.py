"""A run in which nothing moves ends and says so; a second signal ends a process that never comes back to Python."""
import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simulator import cli
from simulator.latency.linear import Linear, LinearParameters
from simulator.results.interrupts import GRACE_S
from simulator.scheduling.vllm import VllmParameters
from support import engine
from support.compiled import built
from support.workloads import plain_workload

EXPERIMENT = """
engine = {scheduler = "for_ever:ForEver", max_num_seqs = 4, max_model_len = 100, num_gpu_blocks = 100}
latency = {backend = "linear"}
workload = {type = "trace", path = "requests.csv"}
"""
REQUESTS = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,10,2\n0.5,10,2\n"
# SHA-256 a billion times over, without the GIL: Python's handlers wait for minutes.
BUSY = """
import hashlib
from simulator.results.interrupts import Interrupts
with Interrupts():
    print("busy", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000_000)
"""


@pytest.fixture(scope="module")
def for_ever(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compiled_standstill")
    built([Path(__file__).parents[1] / "scheduling/compiled/for_ever.pyx"], folder)
    yield importlib.import_module("for_ever")
    sys.path.remove(str(folder))


@pytest.mark.ci
@pytest.mark.slow
def test_a_replica_that_acts_at_one_instant_for_ever_stands_still(for_ever, tmp_path, capsys):
    (tmp_path / "requests.csv").write_text(REQUESTS)
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)

    status = cli.main(["run", str(tmp_path / "experiment.toml"), "--out", str(tmp_path / "out")])

    printed = capsys.readouterr()
    assert status == cli.PROGRAM_FAULT
    assert "INCOMPLETE" in printed.out
    assert ("replica 0: stood still at 0.000000000 s: 2 requests wait and 0 run, and 10,000 turns in a row at that "
            "instant brought no tokens; that is a fault of the program") in printed.err


@pytest.mark.ci
@pytest.mark.slow
def test_events_that_follow_each_other_at_one_instant_end_a_run(for_ever):
    recording = engine.record(
        plain_workload([0, 50_000_000], 10, 3), VllmParameters(), Linear(LinearParameters()), details=False,
        num_gpu_blocks=100, block_size=16, max_model_len=100, operations=(for_ever.Echo,))

    assert not recording.complete
    told, = [each for each in recording.diagnosis if each.startswith("the run stood still at 0.010000000 s")]
    assert "the next event is of kind 0" in told


@pytest.mark.ci
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_two_signals_end_a_process_whose_python_never_runs_again(number, heeded_signals):
    began_s = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "busy\n"
        for _ in range(2):
            time.sleep(0.2)
            os.kill(process.pid, number)
        process.wait(timeout=GRACE_S + 30)

    assert process.returncode == cli.SIGNAL + number
    assert time.monotonic() - began_s > GRACE_S     # until then Python may still put files in order
