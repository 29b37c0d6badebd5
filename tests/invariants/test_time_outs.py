"""Clients that give up: what they got stays, what they held is free, and nobody else waits longer for it."""
import pytest

from simulator.domain import records
from support import engine
from support.scenario import load

WAYS = [{"fast_forward": fast, "coupled": coupled} for fast in (True, False) for coupled in (False, True)]
# Every iteration takes 5 ms.
PRICES = {"base_us": 5000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0, "per_context_token_us": 0.0}
every_way = pytest.mark.parametrize("way", WAYS, ids=str)


def serve(way, options, *requests):
    described = [{"id": request_id, "arrival": 0.0, "output_len": outputs, "prompt": [["uniq", prompt]]} | more
                 for request_id, prompt, outputs, more in requests]
    return engine.run(load({"options": options, "prices": PRICES, "requests": described}), details=False, **way)


@every_way
def test_a_running_request_keeps_the_tokens_it_got_in_time(way):
    # Tokens at 5, 10, ..., 100 ms; the deadline is at 98 ms, so the twentieth comes too late, in the last iteration.
    recording = serve(way, {}, ("a", 10, 100, {"deadline": 0.098}))
    assert recording.requests["status"].tolist() == [records.TIMED_OUT]
    assert recording.requests["output_tokens"].tolist() == [19]
    assert recording.requests["completed_ns"].tolist() == [records.NEVER_NS]
    assert recording.token_times == {0: [5_000_000 * i for i in range(1, 20)]}
    assert len(recording.iterations) == 20
    assert set(recording.itl_gap_ns.tolist()) == {5_000_000}
    assert recording.itl_count.sum() == 18


@every_way
def test_a_token_at_the_deadline_is_in_time(way):
    recording = serve(way, {}, ("a", 10, 3, {"deadline": 0.015}))
    assert recording.requests["status"].tolist() == [records.COMPLETED]


@every_way
def test_a_request_that_gives_up_leaves_the_others_alone(way):
    recording = serve(way, {}, ("a", 10, 100, {"deadline": 0.098}), ("b", 10, 100, {}))
    assert recording.requests["completed_ns"].tolist() == [records.NEVER_NS, 500_000_000]
    assert len(recording.token_times[1]) == 100
    assert recording.itl_count.sum() == 18 + 99


@every_way
def test_the_next_in_line_runs_when_the_blocked_head_gives_up(way):
    # a holds 1 of 57 blocks and b needs them all, so c waits behind b; b gives up at 98 ms, in the iteration to 100.
    options = {"num_blocks": 58, "block_size": 16, "max_model_len": 1024}
    recording = serve(way, options, ("a", 10, 100, {}), ("b", 900, 1, {"arrival": 0.001, "deadline": 0.098}),
                      ("c", 10, 1, {"arrival": 0.001}))
    assert recording.requests["scheduled_ns"].tolist() == [0, records.NEVER_NS, 100_000_000]


@every_way
def test_an_idle_replica_wakes_when_the_blocked_head_gives_up(way):
    # Without chunks a prompt of 60 never fits a budget of 50, and blocks the queue until it gives up.
    options = {"enable_chunked_prefill": False, "max_num_batched_tokens": 50}
    recording = serve(way, options, ("a", 60, 1, {"deadline": 0.1}), ("b", 10, 1, {}))
    assert recording.requests["scheduled_ns"].tolist() == [records.NEVER_NS, 100_000_000]
    assert recording.requests["status"].tolist() == [records.TIMED_OUT, records.COMPLETED]


@every_way
def test_a_request_can_give_up_on_its_way_to_the_queue(way):
    description = {"options": {}, "prices": PRICES, "host": {"queue_base_us": 20_000.0}, "requests": [
        {"id": "a", "arrival": 0.0, "output_len": 5, "prompt": [["uniq", 10]], "deadline": 0.01}]}
    recording = engine.run(load(description), details=False, **way)
    assert recording.requests["status"].tolist() == [records.TIMED_OUT]
    assert recording.requests["enqueued_ns"].tolist() == [records.NEVER_NS]
    assert len(recording.iterations) == 0
