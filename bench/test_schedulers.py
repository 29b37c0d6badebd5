"""All built-in schedulers on the same requests, against `vllm`: CPU time and instructions of the event loop.

Equal requests do not mean equal iterations: separate batches of prompts, or batches that no request joins, take more.
Nor equal admissions: a scheduler that preempts running requests admits them again, so the table has both ratios.
"""
import shutil
import time

import pytest
from cases import Prepared
from instructions import count_loop
from pairs import repeated_cpu_s
from schedulers import LOADS, NAMES, case_of

pytestmark = pytest.mark.benchmark(group="schedulers", timer=time.process_time)
TARGET = "<= 3 x"


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "vllm"])
def test_against_vllm(name, load, pairs, report):
    usual, other = Prepared(case_of("vllm", load)), Prepared(case_of(name, load))

    pair = pairs.against(lambda: repeated_cpu_s(usual), other.ready, rounds=5)

    other.means_ms()                                    # all completed
    iterations = other.total("iterations") / usual.total("iterations")
    admissions = admissions_of(other) / admissions_of(usual)
    report.add(f"`{name}`, {load}", f"{pair.ratio:.2f} x vllm, {pair.ratio / admissions:.2f} x an admission", TARGET,
               f"{pair}; {iterations:.2f} x the iterations, {admissions:.2f} x the admissions")


def admissions_of(prepared):
    """Return the number of admissions in the last run: one a request, and one more for each preemption."""
    return prepared.case.num_requests + prepared.total("preemptions")


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
@pytest.mark.parametrize("load", LOADS)
def test_instructions(load, benchmark, report, tmp_path):
    counts = benchmark.pedantic(
        lambda: {name: count_loop(f"{name}, {load}", tmp_path) for name in NAMES}, rounds=1)

    usual = counts["vllm"][1]
    for name, (iterations, count) in counts.items():
        report.add(f"`{name}`, {load}", f"{count / usual:.2f} x the instructions of vllm", TARGET,
                   f"{count / iterations:,.0f} an iteration, {iterations:,} of them")
