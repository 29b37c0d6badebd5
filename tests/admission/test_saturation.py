"""How saturated replicas are, worked by hand."""
import pytest

from admission.gates import context_of, labelled_workload, made


@pytest.fixture
def context():
    return context_of(labelled_workload(), replicas=3)


def test_never_is_never_saturated(context):
    context.view.account_array["in_flight"] = 1000

    assert made("saturation", "never", context).measure(0) == 0.0


def test_concurrency_counts_what_is_in_flight_where_requests_may_go(context):
    detector = made("saturation", "concurrency", context, max_concurrency=4)
    accounts = context.view.account_array
    accounts["in_flight"] = 1, 3, 5

    assert detector.measure(0) == 9 / 12
    accounts["is_routable"][2] = False
    assert detector.measure(0) == 4 / 8


def test_utilisation_takes_the_larger_ratio_of_each_replica(context):
    detector = made("saturation", "utilisation", context, queue_depth_threshold=2, kv_usage_threshold=0.5)
    states = context.view.state_array
    states["num_blocks"], states["waiting"], states["used_blocks"] = 100, (1, 0, 3), (10, 40, 0)

    # max(1/2, .1/.5), max(0, .4/.5), max(3/2, 0)
    assert detector.measure(0) == pytest.approx((0.5 + 0.8 + 1.5) / 3)
    context.view.account_array["is_routable"] = True, True, False
    assert detector.measure(0) == pytest.approx((0.5 + 0.8) / 2)


def test_a_replica_that_never_reported_is_idle(context):
    assert made("saturation", "utilisation", context).measure(0) == 0.0


@pytest.mark.parametrize("name", ["concurrency", "utilisation"])
def test_without_a_replica_all_are_held(context, name):
    context.view.account_array["is_routable"] = False

    assert made("saturation", name, context).measure(0) == 1.0


def test_only_utilisation_looks_at_replicas(context):
    assert not made("saturation", "concurrency", context).reads_state
    assert not made("saturation", "never", context).reads_state
    assert not (context.view.wants_counts or context.view.wants_levels)
    assert made("saturation", "utilisation", context).reads_state
    assert context.view.wants_counts and context.view.wants_levels


@pytest.mark.parametrize(("mode", "saturation"), [
    ("requests", 9 / 12), ("tokens", 1200 / 3000), ("hybrid", (1.0 + 3 / 4 + 5 / 4) / 3)])
def test_concurrency_may_count_tokens_or_the_larger_share(context, mode, saturation):
    # of 4 requests: 1/4, 3/4, 5/4; of 1000 tokens: 1.0, 0.1, 0.1
    detector = made("saturation", "concurrency", context, mode=mode, max_concurrency=4, max_tokens=1000)
    context.view.account_array["in_flight"] = 1, 3, 5
    context.view.account_array["in_flight_tokens"] = 1000, 100, 100

    assert detector.measure(0) == pytest.approx(saturation)


def test_a_replica_with_an_old_report_counts_as_full(context):
    detector = made("saturation", "utilisation", context, staleness_s=0.2)
    context.view.state_array["time_ns"] = 100_000_000, 99_999_999, 300_000_000

    assert detector.measure(300_000_000) == pytest.approx(1 / 3)


def test_a_bucket_gives_a_token_for_each_request_in_flight(context):
    # Two tokens: both are taken by requests that were sent, one comes back when a request leaves its replica.
    detector = made("saturation", "token_bucket", context, capacity=2)
    accounts = context.view.account_array
    assert detector.measure(0) == 0.0
    accounts["dispatched"][0] = accounts["in_flight"][0] = 1
    assert detector.measure(10) == 0.5
    accounts["dispatched"][1] = accounts["in_flight"][1] = 1
    assert detector.measure(20) == 1.0
    accounts["in_flight"][0] = 0
    assert detector.measure(30) == 0.5


def test_a_bucket_fills_by_the_second_and_no_further_than_full(context):
    # Three of four tokens taken at 0. After 0.4 s at 2 a second 1.8 are there, after 0.75 s and the end of one 3.5.
    detector = made("saturation", "token_bucket", context, capacity=4, refill_per_s=2.0)
    accounts = context.view.account_array
    assert detector.measure(0) == 0.0
    accounts["dispatched"][0] = accounts["in_flight"][0] = 3
    assert detector.measure(400_000_000) == pytest.approx(1 - 1.8 / 4)
    accounts["in_flight"][0] = 2
    assert detector.measure(750_000_000) == pytest.approx(1 - 3.5 / 4)
    accounts["is_routable"] = False                         # it is of the gateway, not of the replicas
    assert detector.measure(9_000_000_000) == 0.0
