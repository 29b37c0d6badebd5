"""Replicas that do not see each other, served by one thread and by two: real time, not that of the processor."""
import statistics
import time

import pytest
from cases import Case, NoSink, Prepared

ROUNDS = 5


@pytest.mark.parametrize("replicas", [64, 512])
@pytest.mark.parametrize("iterations", [False, True], ids=["nothing kept", "iteration table"])
def test_two_threads_against_one(benchmark, report, replicas, iterations):
    def wall_s(threads):
        prepared = Prepared(Case(1_000_000, replicas, engine={"threads": threads}))
        serve = prepared.ready(NoSink(iterations))
        began_s = time.perf_counter()
        serve()
        return time.perf_counter() - began_s

    def rounds():
        return [(wall_s(1), wall_s(2)) for _ in range(ROUNDS)]

    one, two = (statistics.median(times) for times in zip(*benchmark.pedantic(rounds), strict=True))
    report.add(f"two threads, {replicas} replicas, {'with' if iterations else 'without'} iteration table",
               f"{one / two:.2f} x as fast", ">= 1.8 x", f"{one:.3f} s, {two:.3f} s")
