"""What holds in every run in which prompts are computed apart."""
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from invariants.test_scheduler_ways import NAMES, parameters_of
from simulator.domain import records
from simulator.engine.hand_over.plan import Port
from simulator.latency.linear import Linear, LinearParameters
from simulator.scheduling.vllm import VllmParameters
from support.hand_over import MS, random_blis_case, random_case, random_sglang_case, random_vidur_case, serve
from support.workloads import plain_workload


def assert_sound(outcome):
    """Check what holds when all is over."""
    assert outcome.run.complete
    requests, transfers = outcome.requests, outcome.transfers
    assert (requests["status"] >= records.COMPLETED).all()          # nobody is lost
    outcome.hand_over.check()
    assert outcome.hand_over.transport.num_under_way == 0
    assert outcome.hand_over.started == outcome.hand_over.completed + outcome.hand_over.failed
    for replica in outcome.cluster.replicas:        # free + owned + held + loading = usable, and all are free
        replica.check()
        assert replica.scheduler.kv.free_blocks == replica.scheduler.kv.num_blocks
        assert replica.scheduler.loading == replica.scheduler.loading_tokens == 0
    for gateway in outcome.cluster.gateways:
        for name in ("in_flight", "in_flight_tokens", "expected_tokens"):
            assert not gateway.view.account_array[name].any()
    moved = transfers["end_ns"] >= 0
    if outcome.plan.granularity == "prompt":
        assert (transfers["start_ns"][moved] >= transfers["prefill_done_ns"][moved]).all()
    assert (transfers["end_ns"][moved] >= transfers["prefill_done_ns"][moved]).all()
    assert (transfers["end_ns"][moved] >= transfers["start_ns"][moved]).all()
    decoded = moved & (requests["first_token_ns"] >= 0)
    if outcome.plan.has_first_token:        # with the KV; of simai when the prompt is computed
        since = transfers["prefill_done_ns" if outcome.plan.place == "afterwards" else "end_ns"]
        assert (requests["first_token_ns"][decoded] >= since[decoded]).all()
    else:
        assert (requests["first_token_ns"][decoded] > transfers["end_ns"][decoded]).all()      # its KV is there first
    assert transfers["num_bytes"][moved].sum() == outcome.hand_over.num_bytes
    legs = outcome.legs
    handed_over = legs["how"] == records.LEG_ENDS.index("handed_over")
    assert (legs["role"][handed_over] == records.LEG_ROLES.index("prefill")).all()
    assert handed_over.sum() >= (transfers["prefill_done_ns"] >= 0).sum()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6))
def test_prompts_that_are_computed_apart(seed):
    assert_same_without_running_ahead(*random_case(seed))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6))
def test_prompts_that_are_computed_apart_in_blis(seed):
    assert_same_without_running_ahead(*random_blis_case(seed), may_get_stuck=True)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6))
def test_prompts_that_are_computed_apart_under_schedulers_of_vidur(seed):
    assert_same_without_running_ahead(*random_vidur_case(seed), may_get_stuck=True)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6))
def test_prompts_that_are_computed_apart_in_sglang(seed):
    assert_same_without_running_ahead(*random_sglang_case(seed), may_get_stuck=True)


@pytest.mark.parametrize("is_round", [False, True])
def test_one_that_waits_for_the_reserve_of_sglang_is_let_in_while_others_decode(is_round):
    # What is reserved shrinks by each token, free blocks by whole ones: iterations alike are not to be run ahead of it.
    # With round times much happens at the same instant.
    for seed in range(40):
        rng = Random(seed)
        count, block_size = rng.choice([3, 4, 6]), rng.choice([4, 16])
        arrivals = sorted(rng.randint(0, 40) * MS + (0 if is_round else rng.randrange(1000)) for _ in range(count))
        prompts, outputs = ([rng.randint(5, most) for _ in range(count)] for most in (90, 120))
        largest = max(-(-(prompt + output) // block_size) for prompt, output in zip(prompts, outputs, strict=True))
        prices = LinearParameters(base_us=1000.0 if is_round else 1013.0, per_sequence_us=0.0,
                                  per_prefill_token_us=0.0 if is_round else 3.7, per_context_token_us=0.0)
        assert_same_without_running_ahead(plain_workload(arrivals, prompts, outputs), {
            "parameters": VllmParameters(max_num_seqs=16, max_num_batched_tokens=256, async_scheduling=False),
            "latency": Linear(prices),
            "plan": {"order": "destination", "pushes": True, "decode_first": True, "has_first_token": True,
                     "reserved_tokens": rng.choice([0, 8, 32, 64]), "ports": (Port(rng.choice([1e6, 1e8])),) * 2},
            "cache": {"num_gpu_blocks": int(largest * rng.choice([1.05, 1.3, 2])) + 2, "block_size": block_size,
                      "max_model_len": 256, "enable_prefix_caching": False}}, may_get_stuck=True)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"tensorrt_llm"}))       # which hands nothing over
@pytest.mark.parametrize("seed", range(40))
def test_prompts_that_are_computed_apart_under_policies_that_rank(name, seed):
    workload, case = random_case(seed)
    demands, rng = workload.demands.copy(), Random(f"{name} {seed}")
    demands["tenant"] = [rng.choice([-1, 0, 0, 1]) for _ in demands]
    demands["expected_tokens"] = [rng.choice([-1, 1, 30]) for _ in demands]
    workload = replace(workload, demands=demands, labels=dict(workload.labels) | {"tenant": ("a", "b")})
    case["parameters"] = parameters_of(name, rng, case["parameters"])
    case["cache"].pop("layer_groups", None)

    assert_same_without_running_ahead(workload, case)


def assert_same_without_running_ahead(workload, case, *, may_get_stuck=False):
    """Check a case, in long steps and in single ones.

    may_get_stuck : prompts may take all blocks of a decode replica, and wait for one more; the run says so.
    """
    fast = serve(workload, **case)
    slow = serve(workload, fast_forward=False, **case)
    named = serve(workload, tracks_identity=True, **case)

    if not (may_get_stuck and fast.run.diagnosis):
        assert_sound(fast)
    assert (fast.requests == slow.requests).all()
    assert (fast.requests == named.requests).all()
    assert sorted(fast.iterations) == sorted(slow.iterations)
    assert (fast.transfers == slow.transfers).all()
    assert (fast.legs == slow.legs).all()
    assert fast.token_ms == slow.token_ms


@pytest.mark.parametrize("seed", range(4))
def test_the_same_run_is_the_same(seed):
    workload, case = random_case(seed)
    one, other = serve(workload, **case), serve(workload, **case)

    assert np.array_equal(one.requests, other.requests)
    assert np.array_equal(one.transfers, other.transfers)
