"""Flow control of llm-d: ceilings of priorities, least attained service, earliest deadlines, worked by hand."""
import pytest

from admission.gates import S, context_of, labelled_workload, queue_of
from simulator.admission.usage_limits import UsageLimits
from simulator.domain.gateway import GatewayQueueParameters, LeastService, Limits, Saturation
from simulator.domain.slo_classes import SloClass
from simulator.signals.view import View

MS = 1_000_000
CLASSES = [SloClass(name="high", priority=10), SloClass(name="middle", priority=4), SloClass(name="low", priority=0)]


def ceilings(saturation, priorities=(10, 4, 0), lowest_ceiling=1.0, **keys):
    return UsageLimits(Limits(**keys), lowest_ceiling).ceilings(list(priorities), saturation)


@pytest.mark.parametrize(("spacing", "found"), [("rank", [0.9, 0.65, 0.4]), ("value", [0.9, 0.6, 0.4])])
def test_holdback_spaces_ceilings_by_rank_or_by_priority(spacing, found):
    # of 0.9 and 0.4; by value 0.4 + 4 / 10 x 0.5
    keys = {"policy": "holdback", "least_ceiling": 0.4, "largest_ceiling": 0.9, "spacing": spacing}

    assert ceilings(0.3, **keys) == pytest.approx(found)
    assert ceilings(0.3, priorities=[4], **keys) == [0.9]


def test_static_limits_are_those_of_lowest_ceiling():
    assert ceilings(0.3) == [1, 1, 1]
    assert ceilings(0.3, lowest_ceiling=0.5) == [1, 0.75, 0.5]


@pytest.mark.parametrize(("saturation", "open_calls"), [
    (0.2, [1, 1, 1, 1, 1, 1]),          # below 1 - 0.2
    (0.75, [0, 0, 1, 0, 0, 1]),         # from 0.25 on every third: 0.75 / 0.25
    (0.65, [0, 1, 0, 1, 0, 1]),         # 1.86: every second
    (1.0, [0, 0, 0, 0, 0, 0])])
def test_reflective_limits_open_the_lower_band_for_one_of_several_calls(saturation, open_calls):
    limits = UsageLimits(Limits(policy="reflective"), 1.0)

    assert [limits.ceilings([4, 0], saturation) for _ in open_calls] == [[1, each] for each in open_calls]


@pytest.mark.parametrize(("keys", "message"), [
    ({"policy": "holdback"}, "least_ceiling: give it"), ({"least_ceiling": 0.5}, "least_ceiling: leave it out"),
    ({"policy": "reflective", "spacing": "value"}, "largest_ceiling and spacing: leave them out"),
    ({"policy": "holdback", "least_ceiling": 0.9, "largest_ceiling": 0.5}, "expected at most largest_ceiling = 0.5")])
def test_limits_that_do_not_go_together_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        Limits(**keys)


@pytest.mark.parametrize(("keys", "message"), [
    ({"las": LeastService(wait_weight=1.0)}, 'las: leave it out with fairness = "none"'),
    ({"limits": Limits(policy="reflective"), "lowest_ceiling": 0.5}, "lowest_ceiling: leave it out"),
    ({"limits": Limits(policy="reflective"), "order": "fifo"}, 'order = "fifo" has no bands')])
def test_so_are_keys_of_the_queue(keys, message):
    with pytest.raises(ValueError, match=message):
        GatewayQueueParameters(saturation=Saturation(parameters=None), **keys)


@pytest.mark.parametrize(("legs", "rows"), [("first", [0, 1]), ("all", [-1, -1])])
def test_full_decode_replicas_hold_requests_back_where_all_legs_count(legs, rows):
    # one of two prefill slots is in use, and both decode slots
    context, decodes = context_of(labelled_workload([None] * 2)), View(1)
    queue = queue_of(context, detector_keys={"max_concurrency": 2}, saturation_legs=legs)
    queue.watch_decodes(decodes)
    context.view.account_array["in_flight"], decodes.account_array["in_flight"] = 1, 2
    for row in range(2):
        queue.offer_row(row, 0)

    assert [queue.next_row(0) for _ in range(2)] == rows
    decodes.account_array["in_flight"] = 1
    assert queue.next_row(0) == (0 if legs == "all" else -1)


def test_a_band_that_is_held_back_holds_all_below():
    # ceilings 0.9, 0.65, 0.4; seven of ten in flight: the middle class stops all below it
    context = context_of(labelled_workload(["low", "middle", "high"]), classes=CLASSES)
    queue = queue_of(context, detector_keys={"max_concurrency": 10}, limits=Limits(
        policy="holdback", least_ceiling=0.4, largest_ceiling=0.9))
    for row in range(3):
        queue.offer_row(row, 0)
    context.view.account_array["in_flight"] = 7

    assert [queue.next_row(0) for _ in range(2)] == [2, -1]
    context.view.account_array["in_flight"] = 6
    assert [queue.next_row(0) for _ in range(2)] == [1, -1]
    context.view.account_array["in_flight"] = 3
    assert queue.next_row(0) == 0


def served_by(tenants, rows_before, offered_ms, **keys):
    """Return the tenant that a queue with least attained service serves at 60 s.

    rows_before : (row, prompt tokens, output tokens, completed at, in s). offered_ms : age of waiting rows by row.
    """
    workload = labelled_workload([None] * len(tenants), tenants)
    for row, prompt, output, _ in rows_before:
        workload.requests["prompt_tokens"][row], workload.requests["output_tokens"][row] = prompt, output
    queue = queue_of(context_of(workload), fairness="las", las=LeastService(**keys))
    for row, _, _, at_s in rows_before:
        queue.note_left(row, at_s * S)
    for row, age_ms in sorted(offered_ms.items(), key=lambda item: -item[1]):
        queue.offer_row(row, 60 * S - age_ms * MS)
    row = queue.next_row(60 * S)
    queue.check()
    return tenants[row]


def test_least_attained_service_weighs_past_tokens_against_the_wait():
    # P: 1,000 + 2 x 500 at 0 s, half of it at 60 s: 1,000; Q: 600. P 0.8 x 0 + 0.2 x 1, Q 0.8 x 1 + 0.2 x 0
    past, ages = [(0, 1000, 500, 0), (1, 600, 0, 60)], {2: 300, 3: 100}
    tenants = ["P", "Q", "P", "Q"]

    assert served_by(tenants, past, ages) == "Q"
    assert served_by(tenants, past, ages, wait_weight=0.9) == "P"
    assert served_by(tenants, past, ages, half_life_s=10.0) == "P"          # 31 tokens are left: P 0.8 + 0.2
    assert served_by(tenants, past, ages, ttl_s=30.0) == "P"                # P is forgotten
    assert served_by(tenants, [(0, 1000, 0, 60), (1, 600, 300, 60)], ages, output_weight=1.0) == "Q"
    assert served_by(tenants, [(0, 1000, 0, 60), (1, 600, 300, 60)], ages, output_weight=2.0) == "P"


def test_least_attained_service_of_equals_goes_by_the_wait_in_whole_milliseconds_then_by_name():
    assert served_by(["b", "a"], [], {0: 300, 1: 299}) == "b"
    assert served_by(["b", "a"], [], {0: 300, 1: 300}) == "a"


@pytest.mark.parametrize("fairness", ["none", "round_robin"])
@pytest.mark.parametrize(("ttl_s", "order"), [(0.0, [2, 1, 4, 0, 3]), (5.0, [2, 0, 1, 3, 4])])
def test_earliest_deadlines_go_first(fairness, ttl_s, order):
    # deadlines 20, 10, 4, never, 12 s; with a TTL of 5 s from their offers at 0 .. 4 s: 5, 6, 4, 8, 9
    workload = labelled_workload([None] * 5)
    workload.demands["deadline_ns"] = [20 * S, 10 * S, 4 * S, -1, 12 * S]
    queue = queue_of(context_of(workload), order="edf", fairness=fairness, ttl_s=ttl_s)
    for row in range(5):
        queue.offer_row(row, row * S)
    queue.check()

    assert [queue.next_row(4 * S) for _ in range(5)] == order


def test_equal_deadlines_go_by_arrival_and_the_most_urgent_band_first():
    workload = labelled_workload(["low", "high", "low", "high"])
    workload.demands["deadline_ns"] = [S, 9 * S, S, 9 * S]
    queue = queue_of(context_of(workload, classes=CLASSES), order="edf")
    for row in (3, 2, 1, 0):
        queue.offer_row(row, 0)

    assert [queue.next_row(0) for _ in range(4)] == [3, 1, 2, 0]


def test_a_recalled_request_counts_once_as_service():
    # P: 1,000 tokens, were they counted twice 2,000; Q: 1,500
    workload = labelled_workload(["background", "standard", "standard", "standard"], ["P", "Q", "P", "Q"])
    workload.requests["prompt_tokens"][:2], workload.requests["output_tokens"] = (1000, 1500), 0
    context = context_of(workload)
    queue = queue_of(context, detector_keys={"max_concurrency": 10}, fairness="las", in_flight_eviction=True)
    queue.note_sent(0, 0)
    context.view.account_array["in_flight"] = 10
    for row in (2, 3):
        queue.offer_row(row, 0)
    assert (queue.next_row(0), queue.recalled) == (-1, 0)
    for row in (0, 1):
        queue.note_left(row, 0)
    context.view.account_array["in_flight"] = 0

    assert queue.next_row(0) == 2
