"""Why outputs ended."""
import numpy as np
import pytest

from results.fakes import requests_of, workload_of
from simulator.domain import records
from simulator.results.finish import cut_short, finish_codes

DONE = (0, 0, 1, 2, 9)


def reasons(rows, true_tokens, max_tokens, causes=None):
    """Return the finish reasons of requests of which true length and declared limit are known."""
    workload = workload_of(requests_of(rows))
    workload.outcomes["output_tokens"], workload.demands["max_tokens"] = true_tokens, max_tokens
    journeys = None
    if causes is not None:
        journeys = np.zeros(len(rows), records.JOURNEY)
        journeys["cause"] = [records.CAUSE_NAMES.index(cause) for cause in causes]
    return [records.FINISH_NAMES[code] for code in finish_codes(workload, journeys)], cut_short(workload).tolist()


@pytest.mark.parametrize(("kept", "true", "most", "reason"), [
    (5, 5, 9, "stop"),              # its own end
    (5, 9, 5, "length"),            # the limit that its client declared
    (5, 9, 9, "max_model_len"),     # neither: prompt and output were as long as the model takes
    (5, 5, 5, "stop"),              # the end of the text is looked for first
    (0, 0, 1, "stop"),              # one token is sampled and none is kept
])
def test_a_completed_request_ends_by_itself_or_at_a_limit(kept, true, most, reason):
    found, cut = reasons([(*DONE, 10, kept, records.COMPLETED)], true, most)

    assert found == [reason]
    assert cut == ([0] if reason == "max_model_len" else [])


@pytest.mark.parametrize(("status", "cause", "reason"), [
    ("pending", "", ""), ("waiting", "", ""), ("running", "", ""), ("timed_out", "", "timeout"),
    ("rejected", "", "rejected"), ("rejected", "queue_full", "rejected"), ("rejected", "recalled", "abort"),
    ("dropped", "lost", "error"), ("failed", "lost", "error"), ("failed", "recalled", "abort"),
])
def test_a_request_that_did_not_complete_has_a_reason_of_its_own(status, cause, reason):
    row = (0, 0, None, None, None, 10, 0, records.STATUS_NAMES.index(status))

    assert reasons([row], 5, 5, [cause]) == ([reason], [])


def test_a_request_that_was_recalled_and_served_elsewhere_stops_as_others_do():
    assert reasons([(*DONE, 10, 5, records.COMPLETED)], 5, 9, ["recalled"]) == (["stop"], [])
