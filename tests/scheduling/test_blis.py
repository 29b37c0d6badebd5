"""`scheduler = "blis"`, by hand: an iteration takes 1 ms and blocks hold 4 tokens, unless a test says otherwise.

Recorded runs of BLIS itself are in tests/parity/test_blis.py.
"""
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.texts import workload_of
from simulator.config.load import load_experiment
from simulator.domain import records
from simulator.domain.host import HostParameters
from simulator.errors import InputErrors
from simulator.latency.linear import Linear
from simulator.scheduling.blis import Blis
from support.engine import plan_of
from support.recording import record
from support.workloads import plain_workload

MS = 1_000_000
US = 1_000
PRICES = {"base_us": 1000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0, "per_context_token_us": 0.0}


def play(workload, *, num_blocks=100, max_model_len=1000, host=None, details=True, **parameters):
    latency = Linear(Linear.Parameters(**PRICES))
    latency.set_host(0.0, 1.0)
    plan = plan_of(Blis.Parameters(**parameters), latency, scheduler=Blis, block_size=4, num_gpu_blocks=num_blocks + 1,
                   max_model_len=max_model_len, host=host or HostParameters())
    return record(workload, plan, details=details)


def order_of_service(recording):
    """Return the rows in the order in which they were scheduled first."""
    return np.argsort(recording.requests["scheduled_ns"], kind="stable").tolist()


# ---- the queue. Row 0 runs for 10 ms, the others come meanwhile and are then served one by one

def queue_of_three():
    workload = plain_workload([0, 1 * MS, 2 * MS, 3 * MS], [4, 30, 10, 20], [10, 1, 1, 1])
    workload.demands["priority"] = [0, 5, 7, 6]
    return workload


@pytest.mark.parametrize(("policy", "priority_policy", "order"), [
    ("fcfs", "class", [0, 1, 2, 3]),                    # as they came
    ("sjf", "class", [0, 2, 3, 1]),                     # prompts of 10, 20, 30 tokens
    ("priority-fcfs", "class", [0, 1, 3, 2]),           # priority 5, 6, 7
    ("priority-fcfs", "constant", [0, 1, 2, 3]),
    ("priority-fcfs", "slo-based", [0, 1, 2, 3]),       # the oldest is the most urgent
    ("priority-fcfs", "inverted-slo", [0, 3, 2, 1]),    # the youngest
    ("reverse-priority", "class", [0, 2, 3, 1]),        # priority 7, 6, 5
    ("reverse-priority", "constant", [0, 1, 2, 3]),
    ("reverse-priority", "slo-based", [0, 3, 2, 1]),    # the youngest is the least urgent
    ("reverse-priority", "inverted-slo", [0, 1, 2, 3]),
])
def test_the_queue_is_sorted_as_the_policies_say(policy, priority_policy, order):
    recording = play(queue_of_three(), max_num_seqs=1, policy=policy, priority_policy=priority_policy)

    assert order_of_service(recording) == order


@pytest.mark.parametrize(("policy", "order"), [("fcfs", [0, 2, 1]), ("priority-fcfs", [0, 1, 2])])
def test_a_sorted_queue_goes_by_arrival_not_by_who_came_to_it_first(policy, order):
    # prompts of 40 and 4 tokens that arrive at 1 and 1.1 ms reach the queue at 5 and 1.5 ms
    workload = plain_workload([0, 1 * MS, 1.1 * MS], [4, 40, 4], [10, 1, 1])

    recording = play(workload, max_num_seqs=1, policy=policy, host=HostParameters(queue_per_prompt_token_us=100.0))

    assert order_of_service(recording) == order


def test_equal_keys_go_by_the_rank_of_the_request_id():
    workload = plain_workload([0, MS, MS, MS], 4, [10, 1, 1, 1])
    workload.demands["tie_rank"] = [0, 3, 1, 2]

    assert order_of_service(play(workload, max_num_seqs=1, policy="sjf")) == [0, 2, 3, 1]


# ---- the batch

def test_a_chunk_keeps_the_threshold_and_the_batch_its_budget():
    # row 0: 3, 3, 3, 1 of its 10 tokens; row 1 gets 2 of the budget of 5 each time
    recording = play(plain_workload([0, 0], [10, 6], [1, 1]), max_num_batched_tokens=5, long_prefill_token_threshold=3)

    assert [step["scheduled"] for step in recording.steps if step["scheduled"]] == [
        [(0, 3), (1, 2)], [(0, 3), (1, 2)], [(0, 3), (1, 2)], [(0, 1)]]


def test_texts_longer_than_max_model_len_are_dropped():
    workload = plain_workload([0, 0, 0], [10, 10, 11], [5, 6, 1])       # 15, 16 and 12 of 15 tokens

    assert play(workload, max_model_len=15).requests["status"].tolist() == [
        records.COMPLETED, records.DROPPED, records.COMPLETED]


def test_prompts_that_cannot_fit_the_cache_are_dropped():
    assert play(plain_workload(0, 13, 1), num_blocks=3).requests["status"].tolist() == [records.DROPPED]


# ---- scores. Classes: row 1 is batch, row 2 critical, row 3 of none; they came at 1, 2 and 3 ms

@pytest.mark.parametrize(("policy", "priority_policy", "age_weight", "base", "order"), [
    # BLIS: base + 1e-6 x age in us. A head start of 1e-3 is worth 1 ms of age, 2e-3 two; equals as they came.
    ("priority-fcfs", "slo-based", 1e-6, {"critical": 0.5e-3}, [0, 1, 2, 3]),
    ("priority-fcfs", "slo-based", 1e-6, {"critical": 1e-3}, [0, 1, 2, 3]),
    ("priority-fcfs", "slo-based", 1e-6, {"critical": 1.5e-3}, [0, 2, 1, 3]),
    ("priority-fcfs", "slo-based", 1e-6, {"batch": -2.5e-3}, [0, 2, 3, 1]),
    ("priority-fcfs", "slo-based", 2e-6, {"batch": -2.5e-3}, [0, 2, 1, 3]),     # of twice the weight: 1.25 ms
    ("priority-fcfs", "slo-based", 0.0, {}, [0, 1, 2, 3]),                      # all alike
    ("priority-fcfs", "slo-based", 0.0, {"critical": 1.0}, [0, 2, 1, 3]),       # by class alone
    ("priority-fcfs", "slo-based", 1e-6, 3.0, [0, 1, 2, 3]),                    # one base for all, BLIS's
    ("reverse-priority", "slo-based", 1e-6, 3.0, [0, 3, 2, 1]),
    ("priority-fcfs", "slo-based", -1e-6, {}, [0, 3, 2, 1]),                    # the younger the more
    ("priority-fcfs", "inverted-slo", -1e-6, {}, [0, 1, 2, 3]),
    ("priority-fcfs", "inverted-slo", 1e-6, {"critical": 1.5e-3}, [0, 2, 3, 1]),
    ("reverse-priority", "slo-based", 1e-6, {"critical": 1.5e-3}, [0, 3, 1, 2]),
])
@pytest.mark.parametrize("details", [True, False])
def test_scores_are_a_base_by_class_and_age(policy, priority_policy, age_weight, base, order, details):
    workload = queue_of_three()
    workload.labels["slo_class"] = ["batch", "critical"]
    workload.demands["slo_class"] = [-1, 0, 1, -1]
    recording = play(workload, max_num_seqs=1, policy=policy, priority_policy=priority_policy, age_weight=age_weight,
                     base=base, details=details)

    assert order_of_service(recording) == order


@pytest.mark.parametrize(("base", "victim"), [({"critical": 1.0}, 1), ({"batch": 1.0}, 0)])
def test_the_victim_is_the_one_with_the_least_score(base, victim):
    workload = plain_workload([0, 0], 8, 4)
    workload.labels["slo_class"], workload.demands["slo_class"] = ["critical", "batch"], [0, 1]
    recording = play(workload, num_blocks=4, preemption_policy="priority", priority_policy="slo-based", base=base)

    assert recording.requests["preemptions"].tolist() == [int(row == victim) for row in range(2)]


@pytest.mark.parametrize(("given", "message"), [
    ({"age_weight": 1.0}, 'age_weight: expected none with priority_policy = "class"'),
    ({"base": {"a": 1.0}, "priority_policy": "constant"}, 'base: expected none with priority_policy = "constant"'),
    ({"age_weight": 0.0, "priority_policy": "slo-based"}, 'age_weight: expected none with policy = "fcfs"')])
def test_scores_that_nobody_asks_for_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Blis.Parameters(**given)


# ---- preemption. Two prompts of 8 tokens fill 4 blocks; the second token of each needs a fifth

def pressed(**parameters):
    workload = plain_workload([0, 0], 8, 4)
    workload.demands["priority"] = [5, 0]
    return play(workload, num_blocks=4, **parameters)


@pytest.mark.parametrize(("version", "first_token_ms"), [("head", 5), ("0.7", 1)])
def test_the_last_admitted_is_preempted_and_starts_over(version, first_token_ms):
    # Row 0 has tokens at 1, 2, 3 and 4 ms; row 1 is admitted again at 4 ms and needs 4 ms once more.
    recording = pressed(blis_version=version)

    row_0, row_1 = recording.requests
    assert (row_0["completed_ns"], row_0["preemptions"]) == (4 * MS, 0)
    assert (row_1["completed_ns"], row_1["preemptions"], row_1["output_tokens"]) == (8 * MS, 1, 4)
    assert row_1["first_token_ns"] == first_token_ms * MS
    assert recording.token_times[1] == [1 * MS, 5 * MS, 6 * MS, 7 * MS, 8 * MS]


def test_it_finds_what_is_left_of_its_prompt():
    # Row 0 took the block that row 1 had freed first, its second; the first one is found.
    steps = pressed().steps

    assert [step["hits"] for step in steps if step["scheduled"] == [(1, 4)]] == [{1: 4}]


def test_by_priority_the_least_urgent_is_preempted_itself_included():
    # Row 0, of priority 5, cannot grow at 1 ms: it goes, the pass ends, and the next one is at the same instant.
    recording = pressed(preemption_policy="priority")

    assert recording.steps[1]["preempted"] == [0]
    assert recording.steps[1]["scheduled"] == []
    assert (recording.steps[2]["t_ns"], recording.steps[2]["scheduled"]) == (1 * MS, [(1, 1)])
    assert recording.requests["completed_ns"].tolist() == [8 * MS, 4 * MS]


def test_a_victim_that_had_its_turn_gives_its_tokens_back():
    # Of 4 blocks row 0 has room for a token more, row 1 has not: row 0 is scheduled, then preempted for it.
    workload = plain_workload([0, 0], [7, 8], 4)
    workload.demands["priority"] = [5, 0]

    step = play(workload, num_blocks=4, preemption_policy="priority").steps[1]

    assert (step["preempted"], step["scheduled"]) == ([0], [(1, 1)])


@pytest.mark.parametrize(("priority_policy", "victim"), [("slo-based", 1), ("constant", 1), ("inverted-slo", 0)])
def test_by_age_the_victim_is_the_youngest_or_the_oldest(priority_policy, victim):
    # Prompts of 8 and 7 tokens that arrive at 0 and 100 us both reach the queue at 800 us.
    recording = play(plain_workload([0, 100 * US], [8, 7], 4), num_blocks=4, preemption_policy="priority",
                     priority_policy=priority_policy, host=HostParameters(queue_per_prompt_token_us=100.0))

    assert {row for step in recording.steps for row in step["preempted"]} == {victim}


# ---- the cache

def test_the_next_prompt_finds_the_prefix_but_not_its_own_last_token():
    prompt = [(records.named_stream(0), 8)]
    workload = workload_of([prompt, prompt])
    workload.requests["arrival_ns"][1] = 10 * MS

    row = play(workload).requests[1]

    assert (row["cached_tokens"], row["first_token_ns"]) == (4, 11 * MS)


# ---- what only BLIS does

@pytest.mark.parametrize(("version", "time_ns"), [("head", US), ("0.7", MS)])
def test_upstream_a_prompt_found_whole_costs_an_empty_iteration(version, time_ns):
    prompt = [(records.named_stream(0), 8)]
    workload = workload_of([prompt, prompt])
    workload.requests["arrival_ns"][1] = 10 * MS

    recording = play(workload, upstream_compat=True, blis_version=version)

    assert recording.requests["cached_tokens"][1] == 8
    assert recording.requests["first_token_ns"][1] == 10 * MS + time_ns
    assert len(recording.iterations) == 1               # an iteration of no tokens is none to the results


def test_upstream_an_iteration_that_only_preempts_takes_a_microsecond():
    recording = pressed(preemption_policy="priority", upstream_compat=True)

    assert recording.requests["completed_ns"].tolist() == [8 * MS + US, 4 * MS + US]


@pytest.mark.parametrize(("upstream", "scheduled_ns"), [(False, MS), (True, MS // 2)])
def test_upstream_a_batch_that_ends_whole_lets_the_next_begin_beside_it(upstream, scheduled_ns):
    recording = play(plain_workload([0, MS // 2], 4, 1), upstream_compat=upstream)

    assert recording.requests["scheduled_ns"][1] == scheduled_ns


@pytest.mark.parametrize(("upstream", "status"), [(False, records.TIMED_OUT), (True, records.COMPLETED)])
def test_upstream_nobody_gives_up_in_the_last_iteration(upstream, status):
    workload = plain_workload(0, 4, 2)                  # its last iteration runs from 1 to 2 ms
    workload.demands["deadline_ns"] = 1.5 * MS

    assert play(workload, upstream_compat=upstream).requests["status"][0] == status


# ---- always

def test_pipeline_stages_are_refused():
    file = Path(__file__).parents[2] / "configs" / "blis.toml"

    with pytest.raises(InputErrors, match=r'pipeline_parallel: expected 1 with engine.scheduler = "blis", found 2'):
        load_experiment(file, {"topology.pipeline_parallel": 2})


POLICIES = st.fixed_dictionaries({
    "policy": st.sampled_from(["fcfs", "priority-fcfs", "sjf", "reverse-priority"]),
    "preemption_policy": st.sampled_from(["fcfs", "priority"]),
    "priority_policy": st.sampled_from(["class", "constant", "slo-based", "inverted-slo"]),
    "blis_version": st.sampled_from(["0.7", "head"]), "upstream_compat": st.booleans(),
    "max_num_seqs": st.integers(1, 5), "max_num_batched_tokens": st.integers(5, 30),
    "long_prefill_token_threshold": st.integers(0, 6)})
PROMPT = st.integers(1, 20) | st.lists(
    st.tuples(st.sampled_from([records.named_stream(0), records.named_stream(1)]), st.integers(1, 8)),
    min_size=1, max_size=2)


@settings(max_examples=150)
@given(prompts=st.lists(PROMPT, min_size=1, max_size=8), data=st.data(), parameters=POLICIES,
       num_blocks=st.integers(9, 30))
def test_everybody_is_served_within_the_limits_and_no_block_is_lost(prompts, data, parameters, num_blocks):
    outputs, gaps, priorities = (
        data.draw(st.lists(values, min_size=len(prompts), max_size=len(prompts)))
        for values in (st.integers(0, 15), st.integers(0, 3 * MS), st.integers(0, 2)))
    workload = workload_of(prompts)
    workload.requests["arrival_ns"] = np.cumsum(gaps)
    workload.outcomes["output_tokens"] = outputs
    workload.demands["max_tokens"] = np.maximum(outputs, 1)
    workload.demands["priority"] = priorities

    recording = play(workload, num_blocks=num_blocks, **parameters)

    assert recording.complete
    assert (recording.requests["status"] == records.COMPLETED).all()
    assert recording.requests["output_tokens"].tolist() == outputs
    for step in recording.steps:
        assert sum(tokens for _, tokens in step["scheduled"]) <= parameters["max_num_batched_tokens"]
        assert len(step["running"]) <= parameters["max_num_seqs"]
    assert recording.steps[-1]["free_blocks_end" if "free_blocks_end" in recording.steps[-1] else "free_blocks"] == (
        num_blocks)
