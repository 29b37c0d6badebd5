"""Cost of a request with growing numbers of requests, and of replicas under equal load each."""
import time
from statistics import median

import pytest
from cases import Case, Prepared
from pairs import repeated_cpu_s

ROUNDS = 5
pytestmark = pytest.mark.benchmark(group="growth", timer=time.process_time)

REPLICAS = (4, 32, 128, 512)
SERIES = {      # name: cases, target
    "25k to 400k requests on 1 replica": ([Case(25_000 * 4**i) for i in range(3)], "constant"),
    "4 to 512 replicas, 2000 requests each": ([Case(2000 * replicas, replicas) for replicas in REPLICAS], "<= 1.3 x"),
    "4 to 512 replicas, 500k requests in all": ([Case(500_000, replicas) for replicas in REPLICAS], ""),
}


@pytest.mark.parametrize("name", SERIES)
def test_cost_of_a_request_as_the_run_grows(name, benchmark, report):
    cases, target = SERIES[name]
    series = [Prepared(case) for case in cases]
    rounds = []

    benchmark.pedantic(lambda: rounds.append([repeated_cpu_s(each) for each in series]), rounds=ROUNDS)

    ns = [1e9 * median(times) / case.num_requests for case, times in zip(cases, zip(*rounds, strict=True), strict=True)]
    benchmark.extra_info["ns_per_request"] = [round(each, 1) for each in ns]
    report.add(name, f"{ns[-1] / ns[0]:.2f} x", target,
               "ns a request: " + ", ".join(f"{each:.0f}" for each in ns))
