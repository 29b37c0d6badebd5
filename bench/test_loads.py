"""Requests released by the end of others, against equal requests at times known beforehand."""
import os
import time

import numpy as np
import pytest
from cases import Case, Prepared
from msgspec.structs import replace
from pairs import cpu_s

from simulator.domain import records
from simulator.scheduling.vllm import VllmParameters
from simulator.workload.script import Edges, Group, Script, Slots

pytestmark = pytest.mark.benchmark(group="loads", timer=time.process_time)

CLIENTS = 64
NUM_REQUESTS = 1_000_000 if os.environ.get("SIM_BENCH_LARGE") else 100_000


def scripted(case, script):
    """Return a case with requests released by a script."""
    prepared = Prepared(case)
    prepared.workload.requests["arrival_ns"] = records.NEVER_NS
    prepared.workload = replace(
        prepared.workload, script=script, scheduled_ns=np.full(case.num_requests, records.NEVER_NS))
    prepared.keep_untouched()
    return prepared


@pytest.mark.parametrize("is_async", [False, True], ids=["", "async"])
def test_closed_loop_against_the_open_one(is_async, pairs, report):
    parameters, count = VllmParameters(async_scheduling=is_async), NUM_REQUESTS
    group = Group(np.arange(count), Slots(np.zeros(CLIENTS, np.int64)))
    closed = scripted(Case(count, parameters=parameters), Script((group,), np.zeros(count, np.int64)))
    closed.ready()()
    rate_per_s = count / (closed.finished.clock_ns / 1e9)
    open_loop = Prepared(Case(count, rate_per_s=rate_per_s, parameters=parameters))

    pair = pairs.against(lambda: cpu_s(open_loop.ready()), closed.ready, rounds=7)

    assert np.all(closed.workload.requests["status"] == records.COMPLETED)
    report.add(f"closed loop of {CLIENTS} clients, {count:,} requests{', async' * is_async}",
               f"{pair.ratio:.2f} x open", "<= 2 x", f"{pair}; at {rate_per_s:.1f} requests/s both")


def test_sessions_in_flight(pairs, report):
    # 10,000 sessions of ten turns that all begin within a second; their users think for 400 s, so that nearly all are
    # in flight all the time.
    sessions, turns = 10_000, 10
    count = sessions * turns
    rows = np.arange(count)
    targets = rows[rows % turns > 0]
    edges = Edges(targets - 1, targets, np.full(len(targets), 400 * 10**9), np.zeros(len(targets), bool))
    start_ns = np.linspace(0, 1e9, sessions).astype(np.int64)
    script = Script((Group(np.arange(sessions)),), start_ns, np.arange(0, count + 1, turns), edges=edges)
    talks = scripted(Case(count), script)
    open_loop = Prepared(Case(count))

    pair = pairs.against(lambda: cpu_s(open_loop.ready()), talks.ready, rounds=5)

    assert np.all(talks.workload.requests["status"] == records.COMPLETED)
    report.add("10,000 sessions in flight, 10 turns each", f"{1e9 * pair.ours_s / count:.0f} ns a request", "",
               f"{pair} of as many requests at 25/s")
