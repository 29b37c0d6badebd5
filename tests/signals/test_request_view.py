import pytest

from simulator.signals.request_view import RequestView
from support.workloads import plain_workload


def a_request():
    """Return a view of a request that came after 5 ns, of 7 prompt tokens, and the workload."""
    workload = plain_workload([5], 7, 3)
    workload.demands["tenant"], workload.labels["tenant"] = 1, ["blue", "red"]
    return RequestView(workload), workload


def test_what_the_client_declared_is_shown():
    view, workload = a_request()
    workload.demands["max_tokens"], workload.demands["priority"] = 40, -2
    assert (view.arrival_ns, view.prompt_tokens, view.max_tokens, view.priority) == (5, 7, 40, -2)


def test_labels_are_shown_by_name():
    view, _ = a_request()
    assert view.tenant == "red"


def test_a_label_that_was_not_given_is_none():
    view, workload = a_request()
    workload.demands["session"] = workload.demands["slo_class"] = -1
    assert view.session is None and view.slo_class is None


def test_what_becomes_of_a_request_cannot_be_seen():
    view, _ = a_request()
    shown = {name for name in dir(view) if not name.startswith("_")}
    assert not shown & {"output_tokens", "status", "completed_ns", "first_token_ns"}


def test_a_request_cannot_be_written_to():
    view, _ = a_request()
    with pytest.raises(AttributeError):
        view.prompt_tokens = 1
