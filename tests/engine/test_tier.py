"""KV beyond the blocks of a replica, by timelines worked out by hand: iterations of 10 ms, blocks of 16 tokens."""
import pytest
from msgspec.structs import replace

from simulator.domain import records
from simulator.domain.failures import Failure
from simulator.engine.operations.move_plan import MovePlan
from support import engine, migration, upkeep
from support.scenario import load

MS = 1_000_000
TEN_MS = {"base": 0.01, "per_token": 0.0, "per_req": 0.0}


def scenario(requests, load_ms=25, **options):
    """Return a scenario; each request is (arrival in ms, prompt tokens, outputs, what else it says)."""
    requests = [{"id": f"r{i}", "arrival": arrival / 1e3, "prompt": [["uniq", prompt]], "output_len": outputs} | more
                for i, (arrival, prompt, outputs, more) in enumerate(requests)]
    return load({"options": {"kv_connector": True, "num_blocks": 11} | options, "step_time": TEN_MS,
                 "requests": requests, "kv_load_time": {"base": load_ms / 1e3}})


def ms(recording, name):
    return [time / MS for time in recording.requests[name]]


def comes_later(tokens):
    return {"external": {"tokens": tokens, "async": True}}


def test_a_request_whose_kv_comes_from_elsewhere_computes_one_token():
    # It has come at 25, is noticed at once since nothing executes, and the last token of the prompt is computed anew.
    recording = engine.run(scenario([(0, 64, 1, comes_later(64))]))

    assert (ms(recording, "scheduled_ns"), ms(recording, "completed_ns")) == ([25], [35])
    assert recording.iterations["prefill_tokens"].tolist() == [1]
    assert recording.requests["cached_tokens"].tolist() == [63]


def test_what_has_come_is_noticed_when_the_iteration_has_ended():
    # r1 runs from 0 on; at 25 the iteration from 20 to 30 executes.
    recording = engine.run(scenario([(0, 64, 1, comes_later(64)), (0, 16, 9, {})]))

    assert ms(recording, "scheduled_ns") == [30, 0]


def test_those_that_wait_for_kv_are_overtaken_and_take_no_place_among_those_that_run():
    recording = engine.run(scenario([(0, 64, 1, comes_later(64)), (0, 16, 2, {})], max_num_seqs=1))

    assert (ms(recording, "scheduled_ns"), ms(recording, "completed_ns")) == ([25, 0], [35, 20])


def test_kv_that_is_loaded_within_the_iteration_is_not_computed():
    recording = engine.run(scenario([(0, 64, 1, {"external": {"tokens": 40, "async": False}})]))

    assert (ms(recording, "scheduled_ns"), ms(recording, "completed_ns")) == ([0], [10])
    assert recording.iterations["prefill_tokens"].tolist() == [24]


def test_blocks_that_are_read_from_elsewhere_stay_after_the_end():
    # Ten blocks: r0 has eight. r1 needs eight, too, and waits until those of r0 have been read, at 10 + 50.
    recording = engine.run(scenario([(0, 128, 1, {"hold": 0.05}), (0, 128, 1, {})]))

    assert (ms(recording, "completed_ns"), ms(recording, "scheduled_ns")) == ([10, 70], [0, 60])


def test_kv_that_comes_is_given_no_blocks_that_a_prompt_being_computed_needs():
    # Ten blocks, 16 tokens an iteration: after its first chunk r0 still needs seven. r1, for which six would be free,
    # has to wait for its end, at 80.
    recording = engine.run(scenario([(0, 128, 1, {}), (1, 48, 1, comes_later(48))], max_num_batched_tokens=16,
                                    scheduler_reserve_full_isl=False))

    assert ms(recording, "scheduled_ns") == [0, 105]


def test_blocks_of_a_client_that_gave_up_are_free_when_what_was_on_the_way_has_come():
    # r0 gives up at 12 and its four blocks are free at 30, the first end of an iteration after 25.
    recording = engine.run(scenario([(0, 64, 1, comes_later(64) | {"deadline": 0.012}), (0, 16, 5, {})]))

    assert recording.requests["status"].tolist() == [records.TIMED_OUT, records.COMPLETED]
    assert [step["free_blocks"] for step in recording.steps] == [5, 4, 4, 8, 8]


def test_a_request_in_whose_iteration_nothing_else_is_under_way_goes_ahead_in_bulk():
    requests = [(0, 64, 40, comes_later(64)), (0, 16, 90, {}), (7, 33, 30, comes_later(20)), (8, 20, 1, {"hold": 0.1})]
    fast, slow = (engine.run(scenario(requests), details=False, fast_forward=bulk) for bulk in (True, False))

    assert (fast.requests == slow.requests).all()
    assert (fast.iterations == slow.iterations).all()


def test_a_replica_that_stops_forgets_what_was_on_the_way():
    # At 12 r0 waits for its KV and r1 runs. Both are retried at the other replica, where r0 is loaded again, 12 + 25.
    requests = [(0, 64, 1, comes_later(64)), (0, 16, 5, {}), (0, 64, 1, comes_later(64))]
    outcome = upkeep.run(scenario(requests), replicas=2, failures=[Failure(kind="stop", at_s=0.012, which=0)])

    # round robin: r0 and r2 go to replica 0, r1 to the other
    assert outcome.requests["status"].tolist() == [records.COMPLETED] * 3
    assert outcome.requests["replica"].tolist() == [1, 1, 1]
    assert [replica.scheduler.kv.free_blocks for replica in outcome.cluster.replicas] == [10, 10]


def test_legs_tell_tokens_found_from_tokens_loaded():
    # r1 finds the first block of r0 in the KV cache, and 24 more tokens come from elsewhere.
    shared = {"prompt": [["group", "a", 16], ["uniq", 30]]}
    requests = [(0, 46, 1, shared), (20, 46, 1, shared | comes_later(40)), (90, 46, 1, shared | comes_later(46))]
    outcome = upkeep.run(scenario(requests), replicas=1, failures=[Failure(kind="stop", at_s=1.0, which=0)])

    assert outcome.legs["cached_tokens"].tolist() == [0, 16, 16]
    assert outcome.legs["external_tokens"].tolist() == [0, 24, 29]      # the last token of r2 is computed anew
    assert outcome.replicas["prefix_hit_tokens"].tolist() == [32]


@pytest.mark.parametrize("option", [{"async_scheduling": True}, {"num_speculative_tokens": 2},
                                    {"vllm_version": "0.10"}])
def test_what_is_not_settled_with_a_tier_is_refused(option):
    with pytest.raises(ValueError, match="a KV tier: its rules"):
        engine.run(scenario([(0, 64, 1, {})], **option))


def test_requests_of_replicas_with_a_tier_are_not_moved():
    case = scenario([(0, 64, 1, {})])
    plan = replace(case.workload, requests=case.workload.requests.copy())
    with pytest.raises(ValueError, match="cannot be moved"):
        migration.serve(plan, [], replicas=2, plan=MovePlan(ports=(migration.PORT,)), tier=case.tier)
