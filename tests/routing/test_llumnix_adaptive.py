"""Adaptive P/D of Llumnix: one scheduler with two faces, which tells prefill legs from what decodes."""
import json

import msgspec
import numpy as np
import pytest

from routing.faces import context_of, router_of, tell, view_of, workload
from simulator.domain import records
from simulator.routing.llumnix.router import Llumnix, LlumnixParameters
from support.llumnix_faces import LegsFace, dispatches

REQUESTS = workload([600] * 6)
LIVE = {"status_push_interval_s": 0.0, "status_poll_interval_s": 0.0, "status_steps": 0}
IN_FLIGHT = ("in_flight", "in_flight_prefills", "in_flight_decodes", "in_flight_prefill_tokens",
             "in_flight_decode_tokens")


def legs_of(*stood):
    """Return prefill legs: of each (status, whether it is in a queue or was)."""
    table = np.zeros(len(stood), records.REQUEST)
    table["prompt_tokens"] = 600
    table["status"] = [status for status, _ in stood]
    table["enqueued_ns"] = [1 if is_queued else -1 for _, is_queued in stood]
    return table


@pytest.fixture
def adaptive(tmp_path):
    """Return a function that makes the router for a view; a prefill takes 0.1 ms a token, a decode 10 ms and 1 more."""
    for name, rows in {"ttft": [{"tokens_num": n, "p50": 0.1 * n} for n in (0, 8192)], "tpot": [
            {"batch_size": n, "tokens_per_request": tokens, "p50": 10 + n} for n in (1, 64)
            for tokens in (8, 100000)]}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"results": rows}))
    tables = {f"{name}_profiling_data_path": str(tmp_path / f"{name}.json") for name in ("ttft", "tpot")}

    def make(view, legs, **keys):
        return Llumnix(msgspec.convert({"scheduling_policy": "slo", "enable_adaptive_pd": True} | tables | keys,
                                       LlumnixParameters), context_of(view, REQUESTS, prefill_legs=legs))

    return make


def three(**fields):
    """Return a view of a replica for decodes, one for prefills and another for decodes."""
    return view_of(3, **{"num_blocks": 100, "block_size": 16, "iterations": 1, "max_batched_tokens": 8192,
                         "infer_type": [2, 1, 2]} | fields)


def test_legs_count_from_the_queue_on_until_they_are_done():
    counts = LegsFace(2, 5, legs_of((records.WAITING, False), (records.WAITING, True), (records.RUNNING, True),
                                     (records.COMPLETED, True), (records.RUNNING, True)))
    for row, replica in enumerate((0, 0, 0, 0, 1)):
        counts.note_sent(row, replica)
    assert counts.counted() == [(2, 1200), (1, 600)]

    counts.note_left(2, 0)
    counts.note_left(4, 1)

    assert counts.counted() == [(1, 600), (0, 0)]
    counts.counts.check()


def test_a_replica_decodes_what_it_has_less_its_prefill_legs(adaptive):
    # Four run or wait at the third replica, two of them prefill legs of 600 tokens: two decode texts of 300 in all. One
    # leg waits at the second, which decodes nothing.
    view = three(running=[0, 0, 3], waiting=[0, 1, 1], running_tokens=[0, 0, 900], waiting_tokens=[0, 600, 600])
    legs = legs_of((records.RUNNING, True), (records.WAITING, True), (records.WAITING, True))
    router = adaptive(view, legs, enable_instance_status_local_account=False, **LIVE)
    for row, replica in enumerate((2, 2, 1)):
        router.note_sent(row, replica, 0)

    router.choose_replica(3, 5)

    known = router.candidates.array
    assert (known["running_decodes"] + known["waiting_decodes"]).tolist() == [0, 0, 2]
    assert (known["running_decode_tokens"] + known["waiting_decode_tokens"]).tolist() == [0, 0, 300]


def test_a_pushed_status_goes_with_the_legs_of_its_time(adaptive):
    # What is pushed at 0 is seen from the next poll on, 50 ms later: one leg and one decode, though another leg has
    # come since.
    view = three(running=[0, 0, 2], running_tokens=[0, 0, 700])
    legs = legs_of((records.RUNNING, True), (records.RUNNING, True))
    router = adaptive(view, legs)
    router.note_sent(0, 2, 0)
    router.choose_replica(3, 0)
    router.note_sent(1, 2, 0)
    tell(view, running=[0, 0, 3], running_tokens=[0, 0, 1300])

    router.choose_replica(3, 50_000_000)

    known = router.candidates.array[2]
    assert known["running_decodes"] + known["waiting_decodes"] == 1
    assert known["running_decode_tokens"] + known["waiting_decode_tokens"] == 100


def test_both_faces_share_what_is_in_flight(adaptive):
    router = adaptive(three(), legs_of(*[(records.WAITING, False)] * 6))
    decodes = router.for_decodes()
    assert router.choose_replica(0, 0) == 1         # idle, and reserved for prefills

    router.note_sent(0, 1, 0)
    assert dispatches(router.dispatcher.account, 1) == {0: ("prefill", 600, 600, False)}
    assert router.choose_replica(1, 0) == 2         # the other is busy
    router.note_left(0, 1, 5)
    assert decodes.choose_replica(0, 5) == 0        # reserved for decodes
    decodes.note_sent(0, 0, 5)
    assert dispatches(router.dispatcher.account, 0) == {0: ("decode", 600, 600, False)}
    assert router.candidates.array["in_flight_decodes"].tolist() == [1, 0, 0]
    assert np.isfinite(decodes.scores(1, 5)).tolist() == [True, False, True]       # not what is reserved for prefills
    decodes.note_left(0, 0, 9)

    assert not any(router.candidates.array[name].any() for name in IN_FLIGHT)


def test_a_router_for_one_leg_has_no_other_face(adaptive):
    with pytest.raises(ValueError, match="enable_adaptive_pd"):
        adaptive(three(), legs_of(), enable_adaptive_pd=False).for_decodes()
    with pytest.raises(TypeError, match="RoundRobin chooses replicas for one leg of requests alone"):
        router_of("round_robin", three()).for_decodes()
