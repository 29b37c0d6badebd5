"""Requests in flight that the gateway queue revokes, limits in bytes, and the order by slack, worked by hand."""
import pytest

from admission.gates import S, context_of, labelled_workload, queue_of
from simulator.domain.gateway import GatewayQueueParameters, ReclamationRule, Saturation
from simulator.domain.slack import LatencyRow, SlackRule
from simulator.domain.slo_classes import SloClass

MS = 1_000_000


def busy(slo_classes, in_flight, waiting, classes=(), **rule):
    """Return a queue with rows in flight of 10 that may be, and rows that wait, and the account of the replica."""
    context = context_of(labelled_workload(slo_classes), classes=classes)
    queue = queue_of(context, detector_keys={"max_concurrency": 10}, in_flight_eviction=True,
                     reclamation=ReclamationRule(**rule))
    for row in in_flight:
        queue.note_sent(row, 0)
    for row in waiting:
        queue.offer_row(row, 0)
    context.view.account_array["in_flight"] = len(in_flight)
    return queue, context.view.account_array


def test_revocations_cover_the_lack_and_the_next_come_after_a_grace_time():
    # 12 of 10 in flight: (1.2 - 1) / (1.2 / 12) = 2 requests, those that were sent last
    queue, accounts = busy(["background"] * 12 + ["critical"], range(12), [12], grace_s=0.5)
    assert (queue.next_row(0), queue.recalled_rows()) == (-1, [11, 10])

    queue.note_left(11, 10 * MS)
    accounts["in_flight"] = 11
    assert (queue.next_row(20 * MS), queue.recalled_rows()) == (-1, [])         # 10 has not left
    queue.note_left(10, 30 * MS)
    accounts["in_flight"] = 10
    assert (queue.next_row(529 * MS), queue.recalled_rows()) == (-1, [])
    assert (queue.next_row(530 * MS), queue.recalled_rows()) == (-1, [9])       # nothing is lacking, but one must go
    queue.note_left(9, 530 * MS)
    accounts["in_flight"] = 9
    assert (queue.next_row(530 * MS), queue.recalled_rows()) == (12, [])


@pytest.mark.parametrize(("max_evictions", "recalled"), [(1, [11]), (2, [11, 10]), (5, [11, 10])])
def test_a_decision_revokes_no_more_than_allowed(max_evictions, recalled):
    queue, _ = busy(["background"] * 12 + ["critical"], range(12), [12], max_evictions=max_evictions)
    queue.next_row(0)

    assert queue.recalled_rows() == recalled


def test_only_requests_of_lower_priority_are_revoked():
    # background -3, batch -1: 12 in flight lack two places, one of them is below the waiting batch request
    queue, _ = busy(["batch"] * 11 + ["background", "batch"], range(12), [12], max_evictions=5)
    assert (queue.next_row(0), queue.recalled_rows()) == (-1, [11])

    queue, _ = busy(["standard"] * 10 + ["critical"], range(10), [10])          # standard may not be shed
    assert (queue.next_row(0), queue.recalled_rows()) == (-1, [])


def test_an_open_band_above_is_no_reason_to_revoke():
    # ceilings 1, 0.75, 0.5 of critical, batch, background: at 0.6 background alone is held back
    context = context_of(labelled_workload(["critical", "batch", *["background"] * 7]))
    queue = queue_of(context, detector_keys={"max_concurrency": 10}, in_flight_eviction=True, lowest_ceiling=0.5,
                     reclamation=ReclamationRule())
    for row in range(2):
        queue.offer_row(row, 0)
    for row in range(2, 8):
        queue.note_sent(row, 0)
    queue.offer_row(8, 0)
    context.view.account_array["in_flight"] = 6

    assert [queue.next_row(0) for _ in range(3)] == [0, 1, -1]
    assert queue.recalled_rows() == []


def test_bands_and_the_queue_are_bounded_in_bytes():
    # 400 bytes each
    context = context_of(labelled_workload(["critical", "critical", "critical", "batch", "batch", "batch"],
                                           prompt_tokens=100))
    queue = queue_of(context, max_bytes_per_band=1000, max_bytes=1700)

    assert [queue.offer_row(row, 0) for row in range(6)] == [True, True, False, True, True, False]
    assert queue.num_bytes == 1600
    assert (queue.next_row(0), queue.num_bytes) == (0, 1200)
    assert queue.offer_row(2, 0)
    assert queue.remove_row(3)
    assert queue.num_bytes == 1200
    queue.check()


def test_bytes_of_a_token_are_given():
    context = context_of(labelled_workload([None] * 3, prompt_tokens=100))

    assert [queue_of(context, max_bytes=500, bytes_per_token=each).offer_row(0, 0) for each in (5.0, 5.1)] == [
        True, False]


def slack_queue(sizes, **targets):
    """Return a queue by slack; sizes: (prompt tokens, output tokens, offered at, in ms) of each row."""
    workload = labelled_workload([None] * len(sizes))
    workload.requests["prompt_tokens"] = [prompt for prompt, *_ in sizes]
    workload.demands["max_tokens"] = [output for _, output, _ in sizes]
    profile = (LatencyRow(prompt_tokens=64, output_tokens=64, latency_ms=500),
               LatencyRow(prompt_tokens=1024, output_tokens=64, latency_ms=2000))
    queue = queue_of(context_of(workload), order="slack", slack=SlackRule(profile=profile, **targets))
    for row, (_, _, at_ms) in enumerate(sizes):
        queue.offer_row(row, at_ms * MS)
    queue.check()
    return queue


@pytest.mark.parametrize(("targets", "order"), [
    # slack at 1,100 ms: 3,000 - 500 - 1,100 = 1,400; 3,000 - 2,000 - 100 = 900; 3,000 - 500 - 900
    ({"e2el_ms": 3000.0}, [1, 0, 2]),
    # 10 ms a token and 200: 64 x 10 + 200 - 500 - 1,100 = -760; 840 - 2,000 - 100 = -1,260
    ({"tpot_ms": 10.0, "ttft_ms": 200.0}, [1, 0, 2]),
    # 2.5 ms for each of 128 and 1,088 tokens: 320 - 500 - 1,100 = -1,280; 2,720 - 2,000 - 100 = 620
    ({"tpat_ms": 2.5}, [0, 2, 1])])
def test_the_least_slack_goes_first(targets, order):
    queue = slack_queue([(64, 64, 0), (1024, 64, 1000), (64, 64, 200)], **targets)

    assert [queue.next_row(1100 * MS) for _ in order] == order


def test_requests_of_one_size_go_by_arrival():
    # log2 of 100 and 91 tokens rounds to 7, of 90 to 6; due at 1,000 - 500, 10 + 910 - 500, 20 + 900 - 500 ms
    queue = slack_queue([(64, 100, 0), (64, 91, 10), (64, 90, 20)], tpot_ms=10.0)

    assert [queue.next_row(S) for _ in range(3)] == [2, 0, 1]


def test_predicted_outputs_count_in_place_of_the_limit():
    workload = labelled_workload([None] * 2)
    workload.demands["max_tokens"], workload.demands["expected_tokens"] = 100, [-1, 10]
    rule = SlackRule(profile=(LatencyRow(prompt_tokens=1, output_tokens=1, latency_ms=1),), tpot_ms=10.0)
    queue = queue_of(context_of(workload), order="slack", slack=rule)
    for row in range(2):
        queue.offer_row(row, row)

    assert queue.next_row(0) == 1


@pytest.mark.parametrize("targets", [{}, {"ttft_ms": 1.0, "e2el_ms": 1.0}, {"tpot_ms": 1.0, "tpat_ms": 1.0}])
def test_targets_of_slack_are_one(targets):
    with pytest.raises(ValueError, match="give one target"):
        SlackRule(profile=(LatencyRow(prompt_tokens=1, output_tokens=1, latency_ms=1),), **targets)


SLACK = SlackRule(profile=(LatencyRow(prompt_tokens=1, output_tokens=1, latency_ms=1),), e2el_ms=1.0)


@pytest.mark.parametrize(("keys", "message"), [
    ({"order": "slack"}, 'slack: give it with order = "slack"'),
    ({"slack": SLACK}, 'slack: leave it out with order = "priority"'),
    ({"order": "slack", "slack": SLACK, "fairness": "las"}, 'fairness = "las"'),
    ({"bytes_per_token": 5.0}, "bytes_per_token: leave it out"),
    ({"reclamation": ReclamationRule()}, "reclamation: leave it out with in_flight_eviction = false"),
    ({"reclamation": ReclamationRule(), "in_flight_eviction": True, "order": "fifo"}, 'order = "fifo" has no bands'),
    ({"reclamation": ReclamationRule(), "in_flight_eviction": True, "upstream_compat": True}, "the rule of BLIS")])
def test_keys_that_do_not_go_together_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        GatewayQueueParameters(saturation=Saturation(parameters=None), **keys)


def test_the_lowest_priority_is_revoked_first():
    classes = [SloClass(name="low", priority=-5), SloClass(name="lower", priority=-9)]
    queue, _ = busy(["low", "lower"] * 6 + ["critical"], range(12), [12], classes=classes)
    queue.next_row(0)

    assert queue.recalled_rows() == [11, 9]
