"""Members that verify drafts gain several tokens a turn, and nothing else is different."""
from dataclasses import replace
from random import Random

import msgspec
import numpy as np
import pytest

from simulator.domain import records
from simulator.domain.host import HostParameters
from simulator.engine.build import build
from simulator.engine.output.recorder import Recorder
from simulator.engine.plan import Hooks
from simulator.latency.linear import Linear
from simulator.scheduling.acceptance_table import AcceptanceTable
from simulator.scheduling.speculative import SpeculativeParameters
from simulator.scheduling.vllm import VllmParameters
from support.engine import plan_of, record, run
from support.random_scenarios import random_description
from support.random_speculation import KINDS, random_speculation
from support.scenario import load
from support.traffic import random_traffic
from support.workloads import plain_workload

HOSTS = (None, None, HostParameters(output_token_us=40.0, output_token_accumulates=True, completion_us=100.0))


def scene(kind, seed, is_async=None):
    """Return a random scenario with this kind of acceptance, and options of `run`; is_async None: drawn, mostly not."""
    rng = Random(f"{kind} {seed}")
    if rng.random() < 0.35:
        description, replicas = random_description(30_000 + seed, beyond_vllm=True), rng.choice([1, 1, 2])
    else:
        description, replicas = random_traffic(30_000 + seed)
    description["options"] |= {"async_scheduling": rng.random() < 0.1, "num_speculative_tokens": 0}
    if is_async is not None:
        description["options"]["async_scheduling"] = is_async
    if rng.random() < 0.3:
        description["options"]["long_prefill_token_threshold"] = 0
    scenario = load(description)
    parameters = msgspec.structs.replace(scenario.parameters, speculative=random_speculation(rng, kind))
    scenario = replace(scenario, parameters=parameters, host=rng.choice(HOSTS) or scenario.host)
    return scenario, {"replicas": replicas, "tracks_identity": rng.choice([None, None, None, True])}


def assert_same(one, other):
    for name in ("requests", "replicas"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    np.testing.assert_array_equal(*(np.sort(np.repeat(each.itl_gap_ns, each.itl_count)) for each in (one, other)))
    shown = [name for name in one.iterations.dtype.names if name != "spare"]
    np.testing.assert_array_equal(*(np.sort(each.iterations[shown], order=shown[:3]) for each in (one, other)))
    assert one.token_times == other.token_times
    assert one.speculation == other.speculation


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(40))
def test_runs_taken_at_once_change_nothing(kind, seed):
    scenario, options = scene(kind, seed)
    assert_same(*(run(scenario, details=False, fast_forward=fast, **options) for fast in (True, False)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(40))
def test_runs_taken_at_once_change_nothing_with_async_scheduling(kind, seed):
    scenario, options = scene(kind, seed, is_async=True)
    assert_same(*(run(scenario, details=False, fast_forward=fast, **options) for fast in (True, False)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_scenes_are_worth_running(kind):
    recordings = [run(scene(kind, seed)[0], details=False, **scene(kind, seed)[1]) for seed in range(40)]
    requests = np.concatenate([recording.requests for recording in recordings])
    assert requests["preemptions"].sum() > 50
    assert (requests["status"] == records.TIMED_OUT).sum() > 20
    assert (requests["cached_tokens"] > 0).sum() > 50


def cluster_of(parameters, workload, **setup):
    """Return a cluster that has run, one replica unless told otherwise."""
    latency = Linear(Linear.Parameters(base_us=1000.0))
    cluster = build(workload, plan_of(parameters, latency, **setup), Hooks(Recorder()))
    cluster.run()
    return cluster


@pytest.mark.parametrize("acceptance", [(1,), (1, 3, 0), AcceptanceTable(distribution=(1, 2, 1))])
@pytest.mark.parametrize(("setup", "multi_token"), [
    ({}, True), ({"num_gpu_blocks": 200, "enable_prefix_caching": True}, True), ({"tracks_identity": True}, False),
    ({"fast_forward": False}, False)])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_multi_token_cohort_forms_where_no_one_observes_blocks(acceptance, setup, multi_token, is_async):
    parameters = VllmParameters(
        speculative=SpeculativeParameters(num_tokens=3, acceptance=acceptance), async_scheduling=is_async)
    setup = {"num_gpu_blocks": 1000, "block_size": 16, "max_model_len": 1000, **setup}
    cluster = cluster_of(parameters, plain_workload([0] * 8, 100, 50), **setup)

    scheduler = cluster.replicas[0].scheduler
    assert (scheduler.multi_token is not None) == multi_token
    assert not multi_token or scheduler.multi_token.num_joined >= 8
    cluster.replicas[0].check()
    assert scheduler.kv.free_blocks == scheduler.kv.num_blocks


def test_a_constant_acceptance_by_hand():
    # The prompt's iteration brings a token, each later one 1 + 2, the last one what is left: 1 + 3 + 3 + 2 of 9.
    speculative = SpeculativeParameters(num_tokens=4, acceptance=(2,))
    latency = Linear(Linear.Parameters(
        base_us=1000.0, per_sequence_us=0.0, per_prefill_token_us=0.0, per_context_token_us=0.0))
    recording = record(plain_workload(0, 10, 9), VllmParameters(speculative=speculative), latency, details=False,
                       block_size=4, num_gpu_blocks=100, max_model_len=1000)

    assert recording.token_times[0] == [1_000_000, *[2_000_000] * 3, *[3_000_000] * 3, *[4_000_000] * 2]
    assert recording.iterations["decode_tokens"].tolist() == [0, 5, 5, 5]
    assert recording.iterations["context_tokens"].tolist() == [0, 15, 18, 21]
    assert recording.iterations["used_blocks"].tolist() == [3, 4, 5, 6]
    assert recording.itl_gap_ns.tolist() == [1_000_000] * len(recording.itl_gap_ns)
    assert recording.itl_count.sum() == 3
    # Three steps of 4 drafts, each of which has 2 accepted, also the last, of which a text that ends takes one less.
    assert recording.speculation == {"num_draft_tokens": 12, "steps": [0, 0, 3, 0, 0]}


def test_a_constant_acceptance_with_async_scheduling_by_hand():
    # As above; but a batch is formed when the one before it begins, so that its contexts have the 10 tokens of two
    # batches behind the known text, of 10, 10, 13, 16 tokens without its last one. The last batch brings nothing.
    speculative = SpeculativeParameters(num_tokens=4, acceptance=(2,))
    latency = Linear(Linear.Parameters(
        base_us=1000.0, per_sequence_us=0.0, per_prefill_token_us=0.0, per_context_token_us=0.0))
    parameters = VllmParameters(speculative=speculative, async_scheduling=True)
    for fast_forward in (True, False):
        recording = record(plain_workload(0, 10, 9), parameters, latency, details=False, block_size=4,
                           num_gpu_blocks=100, max_model_len=1000, fast_forward=fast_forward)

        assert recording.token_times[0] == [1_000_000, *[2_000_000] * 3, *[3_000_000] * 3, *[4_000_000] * 2]
        assert recording.iterations["decode_tokens"].tolist() == [0, 5, 5, 5, 5]
        assert recording.iterations["context_tokens"].tolist() == [0, 15, 20, 23, 26]
        assert recording.iterations["used_blocks"].tolist() == [3, 4, 5, 6, 7]
        assert recording.itl_count.sum() == 3
        assert recording.speculation == {"num_draft_tokens": 12, "steps": [0, 0, 3, 0, 0]}
