"""What holds in every run with pipeline stages, whatever the scenario."""
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from simulator.domain import records
from support import engine
from support.random_scenarios import random_description
from support.scenario import load
from support.traffic import random_traffic

LAYERS = [(1, 1), (1, 2), (3, 1), (2, 3, 1), (1, 1, 1, 1)]
STAGE_FIELDS = ("sequences", "prefill_tokens", "decode_tokens", "context_tokens", "waiting", "running", "used_blocks",
                "preempted")


def crowded(seed, is_async=False):
    """Return a random scenario whose requests come closely, and the layers of its stages."""
    rng = Random(seed)
    description = random_description(seed, beyond_vllm=True)
    description["options"]["async_scheduling"] = is_async
    if is_async:
        description["options"]["vllm_version"] = "0.32"
    if rng.random() < 0.5:
        for request in description["requests"]:
            request["arrival"] = round(request["arrival"] * 0.1, 6)
    return load(description), rng.choice(LAYERS)


@pytest.fixture(scope="module", params=range(6000, 6080))
def run(request):
    scenario, layers = crowded(request.param, request.param % 2 > 0)
    return scenario, layers, engine.run(scenario, layers=layers)


def assert_same(one, other):
    np.testing.assert_array_equal(one.requests, other.requests)
    np.testing.assert_array_equal(one.replicas, other.replicas)
    for name in ("replica", "stage", "start_ns", "duration_ns", *STAGE_FIELDS):         # all that is written to files
        np.testing.assert_array_equal(one.iterations[name], other.iterations[name])


def batches(recording):
    return [step for step in recording.steps if step["scheduled"]]


def test_no_two_batches_are_in_one_stage_and_none_overtakes(run):
    _, _, recording = run
    for before, after in pairwise(batches(recording)):
        for (_, left_ns), (entered_ns, _) in zip(before["stages"], after["stages"], strict=True):
            assert entered_ns >= left_ns


def test_no_stage_idles_while_a_batch_is_ready_for_it(run):
    scenario, layers, recording = run
    free_ns, ends_ns = [0] * len(layers), set()
    for step in batches(recording):
        ready_ns = step["t_ns"]
        for stage, (start_ns, end_ns) in enumerate(step["stages"]):
            waits_for_tokens = scenario.parameters.async_scheduling and stage == 0 and start_ns in ends_ns
            assert start_ns == max(ready_ns, free_ns[stage]) or waits_for_tokens
            ready_ns = free_ns[stage] = end_ns
        ends_ns.add(ready_ns)


def test_at_most_a_batch_a_stage_is_in_flight_and_one_more_ahead(run):
    scenario, layers, recording = run
    steps = batches(recording)
    for number, step in enumerate(steps):
        in_flight = [before for before in steps[:number] if before["stages"][-1][1] > step["t_ns"]]
        assert len(in_flight) < len(layers) + scenario.parameters.async_scheduling


def test_a_request_goes_on_only_after_its_token_is_back(run):
    # With async scheduling it may be scheduled before, but not be computed.
    scenario, _, recording = run
    output_ns = round(scenario.host.output_token_us * 1e3)
    steps = batches(recording)
    for number, step in enumerate(steps):
        rows = {row for row, _ in step["scheduled"]}
        begins_ns = step["stages"][0][0] if scenario.parameters.async_scheduling else step["t_ns"]
        for before in steps[:number]:
            end_ns = before["stages"][-1][1]
            if end_ns > begins_ns:
                sampled = {row for row, _ in before["scheduled"]
                           if end_ns + output_ns in recording.token_times.get(row, ())}
                assert not rows & sampled


def test_an_iteration_has_a_row_for_each_stage_that_agrees_but_for_time(run):
    _, layers, recording = run
    table, steps = recording.iterations, batches(recording)
    assert (np.diff(table["start_ns"]) >= 0).all()
    rows = [table[table["stage"] == stage] for stage in range(len(layers))]
    assert [len(of_stage) for of_stage in rows] == [len(steps)] * len(layers)
    assert rows[0]["start_ns"].tolist() == [step["t_ns"] for step in steps]
    for stage, of_stage in enumerate(rows):
        visits = [step["stages"][stage] for step in steps]
        assert of_stage["duration_ns"].tolist() == [end - start for start, end in visits]
        if stage:
            assert of_stage["start_ns"].tolist() == [start for start, _ in visits]
            for name in STAGE_FIELDS:
                assert of_stage[name].tolist() == rows[0][name].tolist()


def test_an_iteration_counts_once_in_the_sums(run):
    _, _, recording = run
    replica, steps = recording.replicas[0], batches(recording)
    first = recording.iterations[recording.iterations["stage"] == 0]
    busy_ns, until_ns = 0, 0
    for step in steps:
        start_ns, end_ns = step["stages"][0][0], step["stages"][-1][1]
        busy_ns += end_ns - max(start_ns, until_ns)
        until_ns = end_ns
    assert replica["iterations"] == len(steps)
    assert replica["busy_ns"] == busy_ns
    assert replica["prefill_tokens"] == first["prefill_tokens"].sum()
    assert replica["decode_tokens"] == first["decode_tokens"].sum()
    assert replica["used_block_ns"] <= float(replica["num_blocks"]) * busy_ns


def test_every_request_ends_with_its_outputs_or_was_given_up(run):
    scenario, _, recording = run
    workload, limit = scenario.workload, scenario.cache["max_model_len"]
    for row, request in enumerate(recording.requests):
        assert request["status"] not in (records.PENDING, records.RUNNING)
        if request["status"] == records.COMPLETED:
            most = min(workload.demands["max_tokens"][row], limit - request["prompt_tokens"])
            assert request["output_tokens"] == min(workload.outcomes["output_tokens"][row], most)
            assert len(recording.token_times.get(row, ())) == request["output_tokens"]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("seed", range(6100, 6120))
def test_neither_who_watches_nor_single_steps_change_anything(seed, is_async):
    scenario, layers = crowded(seed, is_async)
    plain, watched = engine.run(scenario, layers=layers, details=False), engine.run(scenario, layers=layers)
    assert_same(plain, watched)
    assert_same(plain, engine.run(scenario, layers=layers, details=False, fast_forward=False))


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("seed", range(6200, 6230))
def test_replicas_with_stages_do_not_see_each_other(seed, is_async):
    # Round robin: replica k of n serves requests k, k + n, ...; looked at with every event, they do the same.
    description, _ = random_traffic(seed)
    description["options"]["async_scheduling"] = is_async
    if is_async:
        description["options"]["vllm_version"] = "0.32"
    scenario, layers = load(description), LAYERS[seed % len(LAYERS)]
    apart = engine.run(scenario, layers=layers, replicas=3, details=False)
    for changed in ({"coupled": True}, {"fast_forward": False}):
        other = engine.run(scenario, layers=layers, replicas=3, details=False, **changed)
        assert_same(apart, other)
        assert apart.token_times == other.token_times


@pytest.mark.parametrize("seed", range(6300, 6310))
def test_one_stage_is_no_stage(seed):
    scenario, _ = crowded(seed)
    assert_same(engine.run(scenario, layers=(7,)), engine.run(scenario))
