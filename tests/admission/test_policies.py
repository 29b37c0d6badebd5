"""Who is let in: each policy against examples worked by hand, and what its rule implies in the long run."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.gates import S, context_of, labelled_workload, made
from simulator.admission.tenant_budgets import Budget, InnerAdmission
from simulator.admission.token_bucket import TokenBucketParameters
from simulator.domain.slo_classes import SloClass

CLASSES = ("critical", "standard", "batch", "sheddable", "background", "new", None)


def inner(name="always", parameters=None):
    return InnerAdmission(policy=name, parameters=parameters)


def budgets(**shares):
    return tuple(Budget(tenant=tenant, share=share) for tenant, share in shares.items())


def decisions(policy, rows, now_ns=0):
    return [policy.lets_in(row, now_ns) for row in rows]


def test_always_and_reject_all_say_the_same_to_everyone():
    context = context_of(labelled_workload(CLASSES))

    assert decisions(made("admission", "always", context), range(7)) == [True] * 7
    assert decisions(made("admission", "reject_all", context), range(7)) == [False] * 7


def test_bucket_is_full_at_first_and_refilled_at_its_rate():
    context = context_of(labelled_workload([None] * 5, prompt_tokens=[60, 50, 50, 100, 1]))
    bucket = made("admission", "token_bucket", context, capacity_tokens=100, refill_tokens_per_s=10)

    assert bucket.lets_in(0, 0)                         # 100 - 60 = 40
    assert not bucket.lets_in(1, S // 2)                # 40 + 5 < 50, and nothing is taken
    assert bucket.lets_in(2, S)                         # 40 + 10 - 50 = 0
    assert bucket.tokens == 0
    assert not bucket.lets_in(3, 10 * S)                # 90 < 100
    assert bucket.lets_in(3, 99 * S)                    # no more than 100
    assert not bucket.lets_in(4, 99 * S)


def test_bucket_never_passes_more_than_a_burst_and_its_rate():
    # Over any time T a bucket passes at most capacity + rate x T; under overload it comes within one request of it.
    rng = np.random.default_rng(7)
    prompts = rng.integers(1, 400, 20_000)
    times_ns = np.cumsum(rng.exponential(1e6, 20_000)).astype(int)      # 200,000 tokens/s offered
    bucket = made("admission", "token_bucket", context_of(labelled_workload([None] * 20_000, prompt_tokens=prompts)),
                  capacity_tokens=5000, refill_tokens_per_s=40_000)

    admitted = np.array([bucket.lets_in(row, now_ns) for row, now_ns in enumerate(times_ns.tolist())])

    bound = 5000 + 40_000 * times_ns[-1] / 1e9
    assert bound - 400 <= prompts[admitted].sum() <= bound
    in_windows = np.cumsum(prompts * admitted)
    for window in (10, 100, 1000):
        passed = in_windows[window:] - in_windows[:-window]
        assert (passed <= 5000 + 40_000 * (times_ns[window:] - times_ns[1:-window + 1]) / 1e9 + 1e-6).all()


@given(st.lists(st.tuples(st.integers(0, 3 * S), st.integers(1, 200)), min_size=1, max_size=50))
def test_bucket_holds_between_nothing_and_its_capacity(steps):
    context = context_of(labelled_workload([None] * len(steps), prompt_tokens=[tokens for _, tokens in steps]))
    bucket = made("admission", "token_bucket", context, capacity_tokens=100, refill_tokens_per_s=10)

    now_ns = 0
    for row, (waited_ns, tokens) in enumerate(steps):
        now_ns += waited_ns
        before = min(100.0, bucket.tokens + waited_ns * 10 / 1e9)
        assert bucket.lets_in(row, now_ns) == (before >= tokens)
        assert 0 <= bucket.tokens <= 100


def test_tier_shedding_spares_the_urgent_while_a_replica_is_loaded():
    context = context_of(labelled_workload(CLASSES), replicas=2)
    policy = made("admission", "tier_shed", context, max_load=6, min_priority=4)
    states, accounts = context.view.state_array, context.view.account_array

    states["waiting"][1], states["running"][1], accounts["in_flight"][1] = 1, 2, 3      # 6, not more
    assert all(decisions(policy, range(7)))
    states["running"][1] = 3
    assert decisions(policy, range(7)) == [True] + [False] * 6
    accounts["is_routable"][1] = False                  # the other is idle
    assert all(decisions(policy, range(7)))


def test_tier_shedding_goes_by_the_priorities_that_were_given():
    context = context_of(labelled_workload(CLASSES), classes=[SloClass(name="batch", priority=9)])
    policy = made("admission", "tier_shed", context)
    context.view.account_array["in_flight"] = 1

    # standard, and what is unknown or not named, have priority 3: the default bound
    assert decisions(policy, range(7)) == [True, True, True, False, False, True, True]


@pytest.mark.parametrize(("waiting", "used_blocks", "admitted"), [
    ((5, 5), (0, 0), False),            # (5/5 + 5/5) / 2 = 1
    ((9, 0), (0, 0), True),             # (9/5 + 0) / 2 < 1
    ((9, 0), (0, 16), False),           # (9/5 + 16/100 / 0.8) / 2 = 1
    ((9, 0), (0, 15), True),            # (9/5 + 15/100 / 0.8) / 2 < 1
    ((9, 1), (0, 15), False),           # (9/5 + 1/5) / 2 = 1: the larger of 0.2 and 0.1875
])
def test_saturation_sheds_what_may_be_shed(waiting, used_blocks, admitted):
    context = context_of(labelled_workload(CLASSES), replicas=2)
    states = context.view.state_array
    states["waiting"], states["used_blocks"], states["num_blocks"] = waiting, used_blocks, 100
    policy = made("admission", "saturation_shed", context)

    assert decisions(policy, range(7)) == [True, True, admitted, admitted, admitted, True, True]


def test_saturation_sheds_where_no_replica_is_left():
    context = context_of(labelled_workload(["batch"]))
    context.view.account_array["is_routable"] = False

    assert not made("admission", "saturation_shed", context).lets_in(0, 0)


def test_a_tenant_has_one_budget():
    with pytest.raises(ValueError, match="budgets: give one for each tenant; there are several of a"):
        made("admission", "tenant_budgets", context_of(labelled_workload()), inner=inner(), budgets=(
            Budget(tenant="a", share=0.1), Budget(tenant="b", share=0.1), Budget(tenant="a", share=0.2)))


def test_a_tenant_over_its_budget_is_refused_what_may_be_shed():
    tenants = ["a"] * 4 + ["b", None]
    context = context_of(labelled_workload(["batch", "batch", "batch", "critical", "batch", "batch"], tenants),
                         num_slots=10)
    policy = made("admission", "tenant_budgets", context, budgets=budgets(a=0.1, absent=0.0), inner=inner())

    policy.note_sent(0, 0)
    assert policy.lets_in(1, 0)                         # 1 in flight is not more than 0.1 x 10
    policy.note_sent(1, 0)
    assert decisions(policy, [2, 3, 4, 5]) == [False, True, True, True]
    policy.note_left(0, 0)
    assert policy.lets_in(2, 0)


def test_a_budget_may_hold_for_every_class():
    context = context_of(labelled_workload(["critical"] * 2, ["a"] * 2), num_slots=10)
    policy = made("admission", "tenant_budgets", context, budgets=budgets(a=0.0), sheddable_only=False, inner=inner())

    assert policy.lets_in(0, 0)                         # 0 in flight is not more than 0
    policy.note_sent(0, 0)
    assert not policy.lets_in(1, 0)


def test_the_inner_policy_decides_within_the_budget_and_is_not_asked_beyond():
    context = context_of(labelled_workload(["batch"] * 3, ["a"] * 3, prompt_tokens=60), num_slots=1)
    bucket = inner("token_bucket", TokenBucketParameters(capacity_tokens=100, refill_tokens_per_s=1e-6))
    policy = made("admission", "tenant_budgets", context, budgets=budgets(a=0.0), inner=bucket)

    assert policy.lets_in(0, 0)                         # 40 tokens are left
    policy.note_sent(0, 0)
    assert not policy.lets_in(1, 0)                     # over the budget: the bucket is not asked
    policy.note_left(0, 0)
    assert not policy.lets_in(2, 0)                     # within it, but 40 < 60
    assert policy.inner.tokens == pytest.approx(40)


def test_probabilistic_rejects_sheddable_requests_with_the_chance_of_the_saturation():
    # 1 of 5 waits: s = 0.2; 300 x 0.2^5 = 0.096 of sheddable requests, and none of others
    context = context_of(labelled_workload(["sheddable"] * 10_000 + ["standard"] * 100))
    context.view.state_array["waiting"] = 1
    policy = made("admission", "probabilistic", context)

    refused = 10_000 - sum(decisions(policy, range(10_000)))

    assert abs(refused - 960) < 4 * 29.5                # standard deviation sqrt(10,000 x 0.096 x 0.904)
    assert all(decisions(policy, range(10_000, 10_100)))
    context.view.state_array["waiting"] = 2             # 0.4: 300 x 0.01024 > 1
    assert not any(decisions(policy, range(100)))
    assert all(decisions(made("admission", "probabilistic", context, k=0.0), range(100)))


@pytest.mark.parametrize(("fields", "keys", "is_let_in"), [
    ({}, {}, False),                                            # TTFT 1 + 2 ms of 2
    ({}, {"ttft_slo_ms": 3.0}, True), ({}, {"ttft_slo_ms": 3.0, "tpot_slo_ms": 0.5}, False),
    ({"in_flight": [1, 0]}, {}, True), ({"used_blocks": [50, 1]}, {}, True),
    ({"in_flight": [1, 0], "is_routable": [1, 0]}, {}, False)])
def test_latency_slo_lets_sheddable_requests_in_where_a_replica_is_idle_or_in_time(fields, keys, is_let_in):
    # a step of 1 ms; 10 us a token: 100 that wait there and 100 of its own
    context = context_of(labelled_workload(["sheddable", "standard"], prompt_tokens=100), replicas=2)
    usual = {"in_flight": 1, "num_blocks": 100, "used_blocks": 50, "waiting_prefill_tokens": 100}
    for name, values in (usual | fields).items():
        array = context.view.state_array if name in context.view.state_array.dtype.names else context.view.account_array
        array[name] = values
    prices = {"base_us": 1000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 10.0, "ttft_slo_ms": 2.0}
    policy = made("admission", "latency_slo", context, **prices | keys)

    assert decisions(policy, [0, 1]) == [is_let_in, True]


def test_latency_slo_knows_the_targets_of_classes():
    classes = [SloClass(name="sheddable", ttft_ms=3.0)]
    context = context_of(labelled_workload(["sheddable", "batch"], prompt_tokens=100), classes=classes)
    context.view.state_array["num_blocks"], context.view.state_array["used_blocks"] = 100, 50
    context.view.account_array["in_flight"] = 1
    policy = made("admission", "latency_slo", context, base_us=1000.0, per_prefill_token_us=10.0, ttft_slo_ms=1.5)

    assert decisions(policy, [0, 1]) == [True, False]           # 2 ms


@pytest.mark.parametrize(("cost", "let_in"), [("input", True), ("output", True), ("total", False)])
def test_token_quota_counts_requests_when_they_leave_and_anew_in_each_window(cost, let_in):
    workload = labelled_workload([None] * 3, ["a", "a", "b"], prompt_tokens=60)
    workload.requests["output_tokens"] = 50
    policy = made("admission", "token_quota", context_of(workload), tokens=100, window_s=10.0, cost=cost)

    assert policy.lets_in(0, 0)
    assert policy.lets_in(1, 5 * S)                     # the first is in flight: not counted
    policy.note_left(0, 9 * S)
    assert policy.lets_in(2, 9 * S) == let_in           # 60, 50 or 110 of 100
    assert policy.lets_in(2, 10 * S)                    # the next window


def test_token_quota_may_be_that_of_each_tenant():
    workload = labelled_workload([None] * 3, ["a", "a", "b"], prompt_tokens=60)
    policy = made("admission", "token_quota", context_of(workload), tokens=50, shared_by="tenant")
    policy.note_left(0, 0)

    assert decisions(policy, [1, 2]) == [False, True]
