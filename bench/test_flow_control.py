"""A dispatch of the gateway queue, with ten and with a hundred thousand waiting requests."""
import time
from statistics import median

import numpy as np
import pytest
from pairs import cpu_s

from simulator import registry
from simulator.admission.base import AdmissionContext
from simulator.admission.gateway_queue import GatewayQueue
from simulator.domain.gateway import GatewayQueueParameters, Saturation
from simulator.domain.slo_classes import by_name
from simulator.signals.view import View
from simulator.workload.build import build_workload
from simulator.workload.columns import Columns, in_arrival_order

ROUNDS, DISPATCHES, TENANTS = 5, 1000, 100
CASES = {       # name: keys of the gateway queue, whether requests have tenants
    "priority": ({}, False),
    "edf": ({"order": "edf"}, False),
    "edf, round_robin over 100 tenants": ({"order": "edf", "fairness": "round_robin"}, True),
    "las over 100 tenants": ({"fairness": "las"}, True),
}
pytestmark = pytest.mark.benchmark(group="flow control", timer=time.process_time)


def queue_of(num_waiting, keys, has_tenants):
    """Return a gateway queue with that many waiting requests; their clients give up at drawn instants."""
    rows = np.arange(num_waiting)
    workload = build_workload(in_arrival_order(Columns(rows, np.full(num_waiting, 100), np.ones_like(rows))))
    workload.demands["deadline_ns"] = np.random.default_rng(1).integers(10**9, 10**12, num_waiting)
    if has_tenants:
        workload.labels["tenant"] = [f"tenant {i}" for i in range(TENANTS)]
        workload.demands["tenant"] = rows % TENANTS
    never = registry.load("saturation", "never")
    queue = GatewayQueue(
        GatewayQueueParameters(saturation=Saturation(detector="never", parameters=never.Parameters()), **keys),
        AdmissionContext(View(1), workload, by_name(()), make=lambda kind, section, context: never(
            section.parameters, context)))
    for row in range(num_waiting):
        queue.offer_row(row, row)
    return queue


def dispatching_s(queue):
    """Return the CPU time of some dispatches."""
    def dispatch():
        for i in range(DISPATCHES):
            queue.next_row(100_000 + i)

    return cpu_s(dispatch)


@pytest.mark.parametrize("case", list(CASES))
def test_dispatch(case, benchmark, report):
    keys, has_tenants = CASES[case]
    few, many = (queue_of(num_waiting, keys, has_tenants) for num_waiting in (10_000, 100_000))
    of_few, of_many = [dispatching_s(few) for _ in range(ROUNDS)], []
    benchmark.pedantic(lambda: of_many.append(dispatching_s(many)), rounds=ROUNDS)
    times_us = [1e6 * median(times_s) / DISPATCHES for times_s in (of_few, of_many)]
    report.add(f"gateway queue: {case}", f"{times_us[0]:.2f}, {times_us[1]:.2f} us", "<= 4 x",
               "a dispatch with 10,000 and with 100,000 waiting requests")
