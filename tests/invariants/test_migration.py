"""What holds in every run in which requests move, whatever moves when."""
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.domain import records
from simulator.engine.operations.move_plan import MovePlan, Port
from simulator.latency.linear import Linear, LinearParameters
from simulator.routing.rescheduling.rebalance import Rebalance, RebalanceParameters
from simulator.scheduling.acceptance_table import AcceptanceTable
from simulator.scheduling.speculative import SpeculativeParameters
from simulator.scheduling.vllm import VllmParameters
from support.migration import assert_all_free, serve
from support.workloads import plain_workload

PRICES = LinearParameters(base_us=2000.0, per_sequence_us=100.0, per_prefill_token_us=20.0, per_context_token_us=0.3)
SPEEDS = (1e8, 1e9, 1e10)
SPECULATIONS = (None, None, None, *(
    SpeculativeParameters(num_tokens=2, num_lookahead_tokens=lookahead, acceptance=acceptance)
    for lookahead, acceptance in ((0, (1, 0, 2)), (2, (1,)), (0, AcceptanceTable(distribution=(1, 2, 1))))))


@st.composite
def scenes(draw):
    """Return (requests, moves, MovePlan, parameters, setup) of a crowded cluster of 2 to 4 replicas."""
    count = draw(st.integers(2, 14))
    arrival_ms = sorted(draw(st.lists(st.sampled_from([0, 1, 7, 30, 90]), min_size=count, max_size=count)))
    requests = [(arrival, draw(st.sampled_from([1, 5, 16, 40, 90])), draw(st.sampled_from([0, 1, 3, 20, 60])),
                 draw(st.sampled_from([None, None, None, 20, 70]))) for arrival in arrival_ms]
    replicas = draw(st.integers(2, 4))
    moves = draw(st.lists(st.tuples(st.sampled_from([1.0, 8.3, 15.0, 31.7, 60.0, 99.9, 140.0]),
                                    st.integers(0, count - 1), st.integers(0, replicas - 1)), max_size=12))
    plan = MovePlan(
        ports=(Port(block_bytes=1e6, inner_bytes_per_s=draw(st.sampled_from((0.0, *SPEEDS))),
                    outer_bytes_per_s=draw(st.sampled_from(SPEEDS)), replicas_per_domain=draw(st.integers(1, 2))),),
        mode=draw(st.sampled_from(["live", "live", "blocking", "recompute"])), max_in=draw(st.integers(1, 3)),
        max_out=draw(st.integers(1, 3)), latency_ns=draw(st.sampled_from([0, 0, 1_500_000])),
        max_stages=draw(st.integers(1, 5)), last_stage_blocks=draw(st.integers(1, 3)),
        rescheduler=draw(st.sampled_from([None, Rebalance])),
        interval_ns=draw(st.sampled_from([3_000_000, 20_000_000])),
        parameters=RebalanceParameters(least_difference=0.05))
    parameters = VllmParameters(
        max_num_seqs=draw(st.sampled_from([1, 2, 8])), max_num_batched_tokens=draw(st.sampled_from([32, 256])),
        policy=draw(st.sampled_from(["fcfs", "priority"])), async_scheduling=draw(st.booleans()),
        speculative=draw(st.sampled_from(SPECULATIONS)))
    setup = {"replicas": replicas, "block_size": draw(st.sampled_from([4, 16])), "max_model_len": 256}
    setup["num_gpu_blocks"] = 2 + -(-160 // setup["block_size"]) + draw(st.sampled_from([0, 3, 30]))
    return requests, moves, plan, parameters, setup


def run(scene, stages=1, **more):
    requests, moves, plan, parameters, setup = scene
    arrival_ms, prompts, outputs, deadline_ms = zip(*requests, strict=True)
    workload = plain_workload(np.array(arrival_ms) * 1_000_000, prompts, outputs)
    for row, (arrival, deadline) in enumerate(zip(arrival_ms, deadline_ms, strict=True)):
        if deadline is not None:
            workload.demands["deadline_ns"][row] = (arrival + deadline) * 1_000_000
    latency = Linear(PRICES)
    if stages > 1:
        latency.set_stages([1] * stages)
    moves = [move for move in moves if arrival_ms[move[1]] < move[0]]
    return serve(workload, moves, plan=plan, parameters=parameters, latency=latency, **(setup | more))


quickly = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def assert_same(one, other):
    np.testing.assert_array_equal(one.requests, other.requests)
    np.testing.assert_array_equal(one.journeys, other.journeys)
    np.testing.assert_array_equal(one.replicas, other.replicas)
    for name in set(one.iterations.dtype.names) - {"spare"}:
        np.testing.assert_array_equal(one.iterations[name], other.iterations[name])
    assert (one.token_ms, one.gaps, one.counts) == (other.token_ms, other.gaps, other.counts)


@quickly
@given(scenes(), st.sampled_from([1, 1, 2]))
def test_every_request_gets_its_tokens_in_order_and_everything_is_free_at_the_end(scene, stages):
    served = run(scene, stages)
    assert served.complete
    assert_all_free(served)
    for row, (request, (_, prompt, outputs, _)) in enumerate(zip(served.requests, scene[0], strict=True)):
        assert request["status"] in (records.COMPLETED, records.TIMED_OUT)
        times = served.token_ms.get(row, [])
        assert len(times) == request["output_tokens"]
        assert times == sorted(times)
        if request["status"] == records.COMPLETED:
            assert request["output_tokens"] == min(outputs, 256 - prompt)
            assert not times or times[-1] == request["completed_ns"] / 1e6
        assert not times or times[0] == request["first_token_ns"] / 1e6
    assert sum(count for _, count in served.gaps) <= served.requests["output_tokens"].sum()
    assert (served.journeys["downtime_ns"] >= 0).all()
    assert served.journeys["migrations"].sum() >= served.counts["moved"]


@quickly
@given(scenes())
def test_no_request_is_on_two_replicas(scene):
    # Each computes a prompt once, but for recomputations: after a preemption, or in that mode.
    served = run(scene)
    computed = served.iterations["prefill_tokens"].sum() + served.iterations["decode_tokens"].sum()
    speculates = scene[3].speculative is not None
    if scene[2].mode != "recompute" and not served.requests["preemptions"].any() and not speculates and (
            served.requests["status"] == records.COMPLETED).all():
        kept = np.maximum(served.requests["output_tokens"], 1)
        assert computed == (served.requests["prompt_tokens"] + kept - 1).sum()


@quickly
@given(scenes())
def test_runs_taken_at_once_change_nothing(scene):
    assert_same(run(scene), run(scene, fast_forward=False))


@quickly
@given(scenes())
def test_block_tables_and_counts_agree(scene):
    assert_same(run(scene, tracks_identity=False), run(scene, tracks_identity=True))


@settings(quickly, max_examples=40)
@given(scenes(), st.sampled_from([1, 1, 2]))
def test_prefix_caching_is_the_same_by_block_tables_and_without(scene, stages):
    assert_same(run(scene, stages, enable_prefix_caching=True),
                run(scene, stages, enable_prefix_caching=True, tracks_identity=True))


@settings(quickly, max_examples=20)
@given(scenes(), st.booleans())
def test_equal_runs_are_equal(scene, caching):
    assert_same(run(scene, enable_prefix_caching=caching), run(scene, enable_prefix_caching=caching))


@settings(quickly, max_examples=40)
@given(scenes(), st.sampled_from([1, 2]))
def test_blocks_are_conserved_with_prefix_caching(scene, stages):
    served = run(scene, stages, enable_prefix_caching=True)
    assert served.complete
    assert_all_free(served)


@settings(quickly, max_examples=40)
@given(scenes())
def test_a_replica_that_is_emptied_ends_up_empty_before_its_requests_are_done(scene):
    scene = (scene[0], [], replace(scene[2], rescheduler=None), *scene[3:])
    served = run(scene, at=[(0.0, lambda migration, now_ns: migration.evacuate_by_migration(0, now_ns))])
    assert_all_free(served)
    assert (served.requests["status"] >= records.COMPLETED).all()


@pytest.mark.parametrize("mode", ["live", "blocking", "recompute"])
def test_requests_move_in_these_scenes(mode):
    # That the properties above are not about nothing
    workload = plain_workload(np.arange(20) * 1_000_000, 90, 60)
    plan = MovePlan(ports=(Port(1e6, 0.0, 1e9),), mode=mode, rescheduler=Rebalance, interval_ns=3_000_000,
                    parameters=RebalanceParameters(least_difference=0.05))
    served = serve(workload, [(30.0, 0, 1), (40.0, 1, 0)], plan=plan, replicas=2, block_size=4, num_gpu_blocks=120,
                   latency=Linear(PRICES))
    assert served.counts["moved"] > 3
    assert_all_free(served)
