"""What holds in every run, whatever the scenario."""
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from simulator.domain import records
from support import engine
from support.random_scenarios import random_description
from support.scenario import load
from support.traffic import random_traffic

SEEDS = range(5000, 5060)
TIMES = ("arrival_ns", "enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns")


@pytest.fixture(scope="module", params=SEEDS)
def run(request):
    """One random scenario and the engine's recording of it."""
    scenario = load(random_description(request.param, beyond_vllm=True))
    return scenario, engine.run(scenario)


def steps_with_work(recording):
    return [step for step in recording.steps if step["scheduled"]]


def never_preempted(recording):
    return [row for row, record in enumerate(recording.requests)
            if record["status"] == records.COMPLETED and not record["preemptions"]]


def test_every_request_is_somewhere(run):
    scenario, recording = run
    requests = recording.requests
    statuses = Counter(requests["status"].tolist())
    assert statuses.keys() <= set(range(records.WAITING, records.TIMED_OUT + 1))
    assert len(requests) == len(scenario.workload)
    assert recording.replicas["completed"].sum() == statuses[records.COMPLETED]
    assert recording.replicas["preemptions"].sum() == requests["preemptions"].sum()
    assert not statuses[records.RUNNING]                # without a horizon whoever runs gets to its end


def test_completed_requests_have_their_outputs(run):
    scenario, recording = run
    workload, limit = scenario.workload, scenario.cache["max_model_len"]
    for row, record in enumerate(recording.requests):
        if record["status"] == records.COMPLETED:
            most = min(workload.demands["max_tokens"][row], limit - record["prompt_tokens"])
            assert record["output_tokens"] == min(workload.outcomes["output_tokens"][row], most)
            assert len(recording.token_times.get(row, ())) == record["output_tokens"]


def test_times_of_a_request_are_in_causal_order(run):
    scenario, recording = run
    output_ns = round(scenario.host.output_token_us * 1e3)
    for row, record in enumerate(recording.requests):
        times = [int(record[name]) for name in TIMES]
        known = [time for time in times if time >= 0]
        assert known == sorted(known)
        assert times[:len(known)] == known, "a later event happened without an earlier one"
        if record["status"] == records.COMPLETED:
            assert len(known) == 5 and record["first_token_ns"] > record["scheduled_ns"] + output_ns
        tokens = recording.token_times.get(row, [])
        assert tokens == sorted(tokens)
        if tokens:
            assert tokens[0] == record["first_token_ns"]
        if tokens and record["status"] == records.COMPLETED:
            assert tokens[-1] == record["completed_ns"]


def test_clock_never_goes_back(run):
    _, recording = run
    instants = [step["t_ns"] for step in recording.steps]
    assert instants == sorted(instants)


def test_iterations_of_a_replica_do_not_overlap(run):
    scenario, recording = run
    depth = 2 if scenario.parameters.async_scheduling else 1     # scheduled one iteration ahead
    iterations = recording.iterations
    ends, free_ns = [], 0
    for start, duration in zip(iterations["start_ns"].tolist(), iterations["duration_ns"].tolist()):
        assert duration >= 1
        free_ns = max(start, free_ns) + duration
        if len(ends) >= depth:
            assert start >= ends[-depth]
        ends.append(free_ns)


def test_every_block_is_free_or_held(run):
    scenario, recording = run
    everything = set(range(1, scenario.cache["num_gpu_blocks"]))
    for step in recording.steps:
        held = {block for blocks in step["blocks"].values() for block in blocks}
        assert held.isdisjoint(step["free_queue"])
        assert held.union(step["free_queue"]) == everything
        assert len(step["free_queue"]) == len(set(step["free_queue"])) == step["free_blocks"]


def test_all_blocks_are_free_in_the_end(run):
    scenario, recording = run
    if steps_with_work(recording):
        assert steps_with_work(recording)[-1]["free_blocks_end"] == scenario.cache["num_gpu_blocks"] - 1


def test_a_block_is_shared_only_with_prefix_caching(run):
    scenario, recording = run
    if scenario.cache["enable_prefix_caching"]:
        return
    for step in recording.steps:
        blocks = [block for held in step["blocks"].values() for block in held]
        assert len(blocks) == len(set(blocks))
        assert step["cached_hashes"] == 0 and not any(step["hits"].values())


def test_batches_keep_their_limits(run):
    scenario, recording = run
    p, limit = scenario.parameters, scenario.cache["max_model_len"]
    budget = min(p.max_num_scheduled_tokens or p.max_num_batched_tokens, p.max_num_batched_tokens)
    for step in recording.steps:
        assert sum(tokens for _, tokens in step["scheduled"]) <= budget
        assert all(tokens >= 1 for _, tokens in step["scheduled"])
        assert len(step["running"]) <= (p.max_num_active_seqs or p.max_num_seqs)
        assert {row for row, _ in step["scheduled"]} <= set(step["running"])
        assert not set(step["running"]) & set(step["waiting"])
        assert all(len(blocks) * scenario.cache["block_size"] < limit + scenario.cache["block_size"]
                   for blocks in step["blocks"].values())


def test_a_request_computes_each_token_but_the_last_once(run):
    # P + out - 1 - cached tokens, if never preempted, without drafts and without wasted steps in flight (async).
    scenario, recording = run
    if scenario.parameters.speculative or scenario.parameters.async_scheduling:
        return
    computed = Counter()
    for step in recording.steps:
        computed.update(dict(step["scheduled"]))
    for row in never_preempted(recording):
        record = recording.requests[row]
        outputs = max(int(record["output_tokens"]), 1)
        assert computed[row] == record["prompt_tokens"] + outputs - 1 - record["cached_tokens"]


def test_each_prompt_is_prefilled_once(run):
    # All but the cached part; what is computed after a sampled token, or on its way to one (async), is decoding.
    _, recording = run
    if len(never_preempted(recording)) < len(recording.requests) or any(step["drafts"] for step in recording.steps):
        return
    requests = recording.requests
    assert recording.iterations["prefill_tokens"].sum() == (requests["prompt_tokens"] - requests["cached_tokens"]).sum()


def test_iteration_table_agrees_with_the_decisions(run):
    scenario, recording = run
    steps = steps_with_work(recording)
    usable = scenario.cache["num_gpu_blocks"] - 1
    expected = [(step["t_ns"], step["duration_ns"], len(step["scheduled"]), sum(n for _, n in step["scheduled"]),
                 len(step["waiting"]), len(step["running"]), usable - step["free_blocks"], len(step["preempted"]))
                for step in steps]
    found = [(int(row["start_ns"]), int(row["duration_ns"]), int(row["sequences"]),
              int(row["prefill_tokens"]) + int(row["decode_tokens"]), int(row["waiting"]), int(row["running"]),
              int(row["used_blocks"]), int(row["preempted"])) for row in recording.iterations]
    assert found == expected


def test_replica_table_sums_up_the_iterations(run):
    _, recording = run
    iterations, replica = recording.iterations, recording.replicas[0]
    assert replica["iterations"] == len(iterations)
    assert replica["busy_ns"] == iterations["duration_ns"].sum()
    assert replica["prefill_tokens"] == iterations["prefill_tokens"].sum()
    assert replica["decode_tokens"] == iterations["decode_tokens"].sum()
    assert replica["peak_used_blocks"] == iterations["used_blocks"].max(initial=0)
    assert replica["used_block_ns"] == pytest.approx(
        (iterations["used_blocks"].astype(float) * iterations["duration_ns"]).sum(), rel=1e-12)


def test_inter_token_samples_are_the_gaps_between_messages(run):
    _, recording = run
    gaps = Counter()
    for times in recording.token_times.values():
        gaps.update(later - earlier for earlier, later in pairwise(sorted(set(times))))
    assert samples_of(recording) == gaps


def test_the_engine_is_never_idle_while_someone_could_run(run):
    # In a gap between iterations nobody may be running or waiting, unless the head of the queue cannot be had.
    scenario, recording = run
    if any(recording.requests["status"] == records.WAITING):
        return                                          # a head that never fits blocks the queue, as in vLLM
    output_ns = round(scenario.host.output_token_us * 1e3)
    requests, end_ns = recording.requests, 0
    deadlines = scenario.workload.demands["deadline_ns"]
    for step in steps_with_work(recording):
        if step["t_ns"] > end_ns:
            for row, record in enumerate(requests):
                completed = record["status"] == records.COMPLETED
                left_ns = record["completed_ns"] - output_ns if completed else deadlines[row]
                if 0 <= record["enqueued_ns"] < step["t_ns"]:
                    assert 0 <= left_ns <= max(end_ns, record["enqueued_ns"]), f"request {row} waits while nothing runs"
        end_ns = max(step["t_ns"], end_ns) + step["duration_ns"]


# Whole tables, on longer workloads.

def tables(recording):
    return {"requests": recording.requests, "iterations": recording.iterations, "replicas": recording.replicas}


def assert_identical(one, other):
    for name, table in tables(one).items():
        for field in table.dtype.names:
            if field != "spare":
                np.testing.assert_array_equal(table[field], tables(other)[name][field], err_msg=f"{name}.{field}")
    assert one.token_times == other.token_times
    assert samples_of(one) == samples_of(other)


def samples_of(recording):
    samples = Counter()
    for gap, count in zip(recording.itl_gap_ns.tolist(), recording.itl_count.tolist()):
        samples[gap] += count
    return samples


@pytest.mark.parametrize("seed", range(80))
def test_fast_forward_changes_nothing(seed):
    description, replicas = random_traffic(seed)
    scenario = load(description)
    fast = engine.run(scenario, replicas=replicas, details=False, fast_forward=True)
    slow = engine.run(scenario, replicas=replicas, details=False, fast_forward=False)
    assert_identical(fast, slow)


@pytest.mark.parametrize("seed", range(80, 100))
@pytest.mark.parametrize("options", [
    {"tracks_identity": True}, {"coupled": True}, {"coupled": True, "fast_forward": False}], ids=str)
def test_how_the_engine_gets_there_changes_nothing(seed, options):
    # tracks_identity: block tables where counting would do. coupled: replicas are kept up to date at every event.
    description, replicas = random_traffic(seed)
    usual = engine.run(load(description), replicas=replicas, details=False)
    assert_identical(usual, engine.run(load(description), replicas=replicas, details=False, **options))


@pytest.mark.parametrize("seed", range(100, 120))
def test_two_runs_are_equal(seed):
    description, replicas = random_traffic(seed)
    one = engine.run(load(description), replicas=replicas, details=False)
    other = engine.run(load(description), replicas=replicas, details=False)
    assert_identical(one, other)


@pytest.mark.parametrize("seed", range(120, 140))
def test_a_replica_is_not_disturbed_by_the_others(seed):
    # Round robin: replica k of n serves requests k, k + n, ...; alone with these it does the same.
    description, _ = random_traffic(seed)
    for request in description["requests"]:
        request["prompt"] = [piece for piece in request["prompt"] if piece[0] in ("uniq", "group")]
    together = engine.run(load(description), replicas=3, details=False)
    for replica in range(3):
        alone = engine.run(load(description | {"requests": description["requests"][replica::3]}), details=False)
        for name in ("arrival_ns", "enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns", "output_tokens",
                     "cached_tokens", "preemptions", "status"):
            np.testing.assert_array_equal(together.requests[name][replica::3], alone.requests[name], err_msg=name)


@pytest.mark.parametrize("seed", range(140, 170))
@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
def test_a_horizon_cuts_history_and_does_not_change_it(seed, fast_forward):
    description, replicas = random_traffic(seed)
    whole = engine.run(load(description), replicas=replicas, details=False)
    horizon_ns = int(whole.requests["completed_ns"].max()) // 3
    cut = engine.run(load(description), replicas=replicas, details=False, fast_forward=fast_forward,
                     horizon_ns=horizon_ns)
    for name in ("enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns"):
        output_ns = 50_000 if name in ("first_token_ns", "completed_ns") and description.get("host") else 0
        expected = np.where(whole.requests[name] - output_ns <= horizon_ns, whole.requests[name], records.NEVER_NS)
        np.testing.assert_array_equal(cut.requests[name], expected, err_msg=name)
    statuses = Counter(cut.requests["status"].tolist())
    assert sum(statuses.values()) == len(whole.requests)
