"""The lag of `observe`, and its CPU time: on one core, against the tests' server on another.

Lag depends on the machine, too: other programs take the core away. So nothing is asserted of it.
"""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
from test_process import ENVIRONMENT, children_s

from simulator.study.observe.self_test import RATE_PER_S as SELF_TEST_RATE_PER_S
from simulator.study.observe.self_test import self_test

STAND_IN = Path(__file__).parents[1] / "tests" / "support" / "sse_server.py"
RATE_PER_S, SECONDS = 500, 6
TARGET_MS = 2.0
MANNERS = {"ttft_s": 0.02, "tpot_s": 0.005}


def experiment(output_tokens):
    """Return requests of a constant rate, with prompts as long as in chats."""
    return {"engine": {"scheduler": "vllm", "max_num_seqs": 100, "max_model_len": 4000, "num_gpu_blocks": 1000},
            "latency": {"backend": "linear"},
            "workload": {"type": "synthetic", "num_requests": RATE_PER_S * SECONDS,
                         "arrival": {"process": "poisson", "rate_per_s": float(RATE_PER_S)},
                         "prompt_tokens": {"distribution": "constant", "value": 200},
                         "output_tokens": {"distribution": "constant", "value": output_tokens}}}


@pytest.fixture
def stand_in():
    """Start the server in a process; yield its address."""
    with subprocess.Popen([sys.executable, STAND_IN, json.dumps(MANNERS)], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, preexec_fn=lambda: keep_to(-1)) as process:
        yield process.stdout.readline().strip()
        process.stdin.close()


def keep_to(place):
    """Restrict this process to one of its cores, if the system supports that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[place]})


@pytest.mark.parametrize("output_tokens", [1, 8, 16])
@pytest.mark.benchmark(group="observe")
def test_requests_leave_in_time(benchmark, report, tmp_path, stand_in, output_tokens):
    path, out, spent_s = tmp_path / "measured.toml", tmp_path / "out", []
    path.write_text(tomli_w.dumps(experiment(output_tokens)))
    command = [sys.executable, "-m", "simulator", "observe", str(path), "--url", stand_in, "--model", "stand-in",
               "--out", str(out), "--overwrite", "--quiet", "--self-test", "0"]

    def measure():
        before_s = children_s()
        subprocess.run(command, check=True, env=ENVIRONMENT, stderr=subprocess.DEVNULL, preexec_fn=lambda: keep_to(0))
        spent_s.append(children_s() - before_s)

    benchmark.pedantic(measure, rounds=1)
    found = json.loads((out / "server.json").read_text())
    lag_ms, count = found["summary"]["lag_ms"], RATE_PER_S * SECONDS
    spent = f"{spent_s[-1]:.1f} s of CPU for {SECONDS} s, start included"
    report.add(f"observe, {RATE_PER_S} requests/s of {output_tokens} tokens", f"lag p99 {lag_ms['p99']:.2f} ms",
               f"{TARGET_MS:g} ms", f"p50 {lag_ms['p50']:.2f}, max {lag_ms['max']:.1f} ms; {spent}")

    assert found["summary"]["requests"]["ok"] == count
    assert found["summary"]["messages"] == count * output_tokens


@pytest.mark.benchmark(group="observe")
def test_the_client_measures_itself(benchmark, report):
    found = benchmark.pedantic(self_test, args=(2.0,), rounds=1)
    report.add("observe, self-test on loopback", f"{found['messages_per_s']:,.0f} messages/s", "",
               f"lag p99 {found['lag_ms']['p99']:.2f} ms at {SELF_TEST_RATE_PER_S} requests/s of a token")

    assert found["messages_per_s"] > 0
