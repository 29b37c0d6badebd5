"""Llumnix's rescheduler over a view, and what it chooses of the requests of a source."""
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.faces import tell, view_of
from simulator.errors import InputErrors
from simulator.routing.llumnix.candidates import Candidates
from simulator.routing.llumnix.composition import METRIC_NAMES
from simulator.routing.llumnix.rescheduler import LlumnixRescheduler, LlumnixReschedulerParameters
from simulator.routing.rescheduling.base import Rescheduler, selected_requests
from support.llumnix_faces import pairs_of

S = 10**9


def rescheduler(view, **keys):
    return LlumnixRescheduler(LlumnixReschedulerParameters(**keys), SimpleNamespace(view=view))


def full_view(**fields):
    """Return a view of three busy replicas for whole requests, with 100 blocks of 16 tokens."""
    return view_of(3, **{"num_blocks": 100, "block_size": 16, "running": 1, "iterations": 1, "time_ns": 0} | fields)


def moves(policy, now_ns=0):
    return [(policy.policies[index], source, destination)
            for source, destination, index, *_ in policy.planned(now_ns)]


def test_the_base_moves_nothing():
    assert Rescheduler(None, SimpleNamespace(view=view_of(2))).planned(0) == []


def test_a_full_replica_gives_to_the_emptiest():
    view = full_view(used_blocks=[100, 20, 5])
    policy = rescheduler(view, policies=("neutral_load",))

    assert policy.planned(0) == [(0, 2, 0, "TOKEN", "SR", 1024.0)]
    assert policy.interval_ns == 500 * 10**6


def test_a_small_difference_is_not_worth_a_move():
    view = full_view(used_blocks=[100, 31, 31])

    assert moves(rescheduler(view, policies=("neutral_load",))) == []
    assert moves(rescheduler(view, policies=("neutral_load",), load_balance_threshold=0.0)) == [("neutral_load", 0, 1)]


def test_a_closed_replica_is_emptied_in_turn():
    view = full_view(is_routable=[1, 0, 1])

    assert moves(rescheduler(view)) == [("neutral_failover", 1, 0)]


def test_a_replica_that_has_not_reported_for_long_is_emptied():
    view = full_view()
    policy = rescheduler(view)
    assert moves(policy, 60 * S) == []

    tell(view, time_ns=[0, 61 * S, 61 * S], iterations=[1, 2, 2])

    assert moves(policy, 61 * S) == [("neutral_failover", 0, 1)]


def test_the_reverse_of_a_planned_move_is_left_out():
    # 0 is full and gives to 1, which is closed and would give to 0
    view = view_of(2, num_blocks=100, block_size=16, running=1, iterations=1, used_blocks=[100, 0])
    opened = rescheduler(view, policies=("neutral_load", "neutral_failover"))
    assert moves(opened) == [("neutral_load", 0, 1)]

    tell(view, is_routable=[1, 0])

    assert moves(opened) == [("neutral_failover", 1, 0)]


@pytest.fixture
def tpot(tmp_path):
    """Return the keys of a table in which an iteration takes 1 ms a sequence."""
    path = tmp_path / "tpot.json"
    path.write_text(json.dumps({"results": [{"batch_size": n, "tokens_per_request": tokens, "p50": n}
                                            for n in (1, 64) for tokens in (8, 100000)]}))
    return {"tpot_profiling_data_path": str(path)}


def test_a_slow_replica_gives_one_request_to_the_fullest_that_is_fast_enough(tpot):
    # one more sequence: 48 ms >= 0.95 x 50, and 21 and 31 ms < 0.85 x 50
    view = full_view(infer_type=2, running=[47, 20, 30], running_tokens=[4700, 2000, 3000])

    policy = rescheduler(view, policies=("binpacking_mitigation",), **tpot)

    assert policy.planned(0) == [(0, 2, 0, "NUM_REQ", "LCR", 1.0)]
    patient = rescheduler(view, policies=("binpacking_mitigation",), tpot_migrate_out_ceil_threshold=1.0, **tpot)
    assert patient.planned(0) == []         # 48 ms < 1.0 x 50


def test_a_nearly_idle_replica_is_emptied_into_the_fullest(tpot):
    # 5 and 21 ms < 0.6 x 50: the first gives, to the one with 40 ms
    view = full_view(infer_type=2, running=[4, 20, 39], running_tokens=[400, 2000, 3900])

    assert moves(rescheduler(view, policies=("binpacking_consolidation",), **tpot)) == [
        ("binpacking_consolidation", 0, 2)]


def test_bin_packing_needs_a_table():
    with pytest.raises(InputErrors, match="tpot_profiling_data_path: missing"):
        rescheduler(full_view(), policies=("binpacking_mitigation",))


def test_adaptive_pd_adds_both_bin_packings(tpot):
    assert rescheduler(full_view(), policies=("decode_load",), enable_adaptive_pd=True, **tpot).policies == [
        "decode_load", "binpacking_mitigation", "binpacking_consolidation"]


@given(st.lists(st.integers(0, 20), min_size=2, max_size=9))
def test_balance_only_moves_downhill_and_uses_each_replica_once_a_side(values):
    candidates = Candidates(len(values))
    candidates.metric_array[METRIC_NAMES.index("decode_batch_size")] = values
    everyone = range(len(values))

    pairs = pairs_of(candidates, "metric_balance", everyone, everyone, "decode_batch_size")

    assert all(values[source] > values[destination] for source, destination in pairs)
    assert len({source for source, _ in pairs}) == len({destination for _, destination in pairs}) == len(pairs)
    assert bool(pairs) == (max(values) > min(values))


MOVABLE = st.lists(st.tuples(st.just(0), st.integers(1, 300), st.integers(0, 5), st.booleans(), st.booleans()),
                   max_size=12)


@given(MOVABLE, st.sampled_from(["LCR", "FCR", "LR", "SR", "FCW", "FCWSR"]), st.integers(0, 600))
def test_a_budget_is_exceeded_by_the_last_request_alone(requests, order, budget):
    chosen = selected_requests("TOKEN", order, budget, requests, 0)

    assert len(set(chosen)) == len(chosen)
    assert not any(requests[i][4] for i in chosen)
    assert all(requests[i][1] <= budget for i in chosen)
    assert sum(requests[i][1] for i in chosen[:-1]) < max(budget, 1)


@given(MOVABLE)
def test_everything_that_is_not_moving_already_leaves_a_failed_replica(requests):
    chosen = selected_requests("NUM_REQ", "LR", -1, requests, 0)

    assert sorted(chosen) == [i for i, each in enumerate(requests) if not each[4]]
    assert [requests[i][3] for i in chosen] == sorted(requests[i][3] for i in chosen)      # those that wait go first
