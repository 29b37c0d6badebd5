"""Ranks in lock step, by timelines worked out by hand; round robin gives request i to rank i modulo their number."""
import numpy as np
import pytest

from simulator.domain import records
from simulator.engine.operations.move_plan import MovePlan
from support import engine, migration
from support.lock_step import RANKS_AND_REPLICAS, assert_alike, with_long_answers
from support.random_scenarios import random_description
from support.scenario import load
from support.workloads import plain_workload

MS = 1_000_000
# An iteration takes 10 ms and 0.1 ms for each prompt token besides
STEP_TIME = {"base_us": 10_000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 100.0, "per_decode_token_us": 0.0,
             "per_context_token_us": 0.0}


def run(requests, ranks, replicas=None, options=None, **setup):
    """Serve requests, each (arrival in ms, prompt tokens, outputs), by the ranks of one engine, or of several."""
    requests = [{"id": f"r{i}", "arrival": arrival / 1e3, "prompt": [["uniq", prompt]], "output_len": outputs}
                for i, (arrival, prompt, outputs) in enumerate(requests)]
    case = load({"options": options or {}, "prices": STEP_TIME, "requests": requests})
    return engine.run(case, replicas=replicas or ranks, ranks=ranks, **setup)


def ms(recording, name):
    return [time / MS for time in recording.requests[name]]


def test_an_iteration_lasts_as_long_as_that_of_the_slowest_rank():
    # Rank 0 decodes; rank 1 gets a prompt of 100 tokens at 5, which it computes from 11 to 31, and rank 0 waits for it.
    recording = run([(0, 10, 4), (5, 100, 1)], ranks=2)

    assert [time / MS for time in recording.token_times[0]] == [11, 31, 41, 51]
    assert (ms(recording, "scheduled_ns"), ms(recording, "completed_ns")) == ([0, 11], [51, 31])
    gaps_ms = np.repeat(recording.itl_gap_ns // MS, recording.itl_count)
    assert sorted(gaps_ms) == [10, 10, 20]


def test_a_rank_without_tokens_has_no_iterations_of_its_own():
    recording = run([(0, 10, 3)], ranks=3)

    assert recording.iterations["replica"].tolist() == [0, 0, 0]
    assert recording.replicas["busy_ns"].tolist() == [31 * MS, 0, 0]


@pytest.mark.parametrize(("arrival_ms", "scheduled_ms"), [
    (25, 31),       # ranks go on with dummy batches of 10 ms after the two iterations up to 21
    (160, 161), (161, 161),
    (162, 162),     # sixteen iterations have passed, the ranks sleep: it is served at once
])
def test_ranks_go_on_with_dummies_until_they_agree_that_nothing_is_left(arrival_ms, scheduled_ms):
    recording = run([(0, 10, 2), (arrival_ms, 10, 1)], ranks=2)

    assert ms(recording, "scheduled_ns") == [0, scheduled_ms]


def test_ranks_agree_after_their_first_iteration_too():
    recording = run([(0, 10, 1), (12, 10, 1)], ranks=2)

    assert ms(recording, "scheduled_ns") == [0, 12]


def test_engines_beside_each_other_have_a_beat_each():
    # Requests 0 and 1 are the ranks of the first engine, 2 and 3 those of the second.
    recording = run([(0, 10, 3), (0, 110, 1), (0, 10, 3), (0, 10, 1)], ranks=2, replicas=4)

    assert ms(recording, "completed_ns") == [21 + 10 + 10, 21, 31, 11]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("seed", range(40))
def test_taking_iterations_in_bulk_changes_nothing(seed, is_async):
    description = random_description(seed)
    description["options"] |= {"async_scheduling": is_async, "num_speculative_tokens": 0, "spec_lookahead": 0}
    ranks, replicas = RANKS_AND_REPLICAS[seed % 3]
    case = with_long_answers(description)
    fast, slow = (engine.run(case, details=False, fast_forward=bulk, ranks=ranks, replicas=replicas)
                  for bulk in (True, False))

    assert_alike(fast, slow)


def test_clients_that_give_up_leave_with_the_common_iteration():
    requests = [{"id": "r0", "arrival": 0, "prompt": [["uniq", 10]], "output_len": 50},
                {"id": "r1", "arrival": 0, "prompt": [["uniq", 110]], "output_len": 50, "deadline": 0.015}]
    recording = engine.run(load({"options": {}, "prices": STEP_TIME, "requests": requests}), replicas=2, ranks=2)

    assert recording.requests["status"].tolist() == [records.COMPLETED, records.TIMED_OUT]
    assert recording.requests["completed_ns"][0] == (21 + 49 * 10) * MS


@pytest.mark.parametrize(("setup", "message"), [
    ({"replicas": 3}, "3 replicas are no groups of 2 ranks")])
def test_what_is_not_settled_with_ranks_is_refused(setup, message):
    with pytest.raises(ValueError, match=message):
        run([(0, 10, 1)], ranks=2, **setup)


def test_requests_do_not_move_between_ranks():
    with pytest.raises(ValueError, match="migration cannot be had"):
        migration.serve(plain_workload(0, 100, 50), [], replicas=2, ranks=2, plan=MovePlan(ports=(migration.PORT,)))


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_request_that_arrives_while_all_ranks_run_dummies_begins_with_the_next_step(ranks, is_async):
    # The first is complete after 31 ms; from then on dummies run until the ranks agree to stop, at the 32nd step.
    for arrival in (35, 40, 41.5, 99, 200, 305, 340, 1000):
        recording = run([(0, 10, 3), (arrival, 10, 2)], ranks=ranks, options={"async_scheduling": is_async})

        assert 0 <= ms(recording, "scheduled_ns")[1] - arrival <= 10
        assert ms(recording, "completed_ns")[1] > arrival
