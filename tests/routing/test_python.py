"""Routers and scorers written in Python."""
import inspect

import msgspec
import numpy as np
import pytest

from routing.faces import context_of, send, tell, view_of, workload
from simulator.routing.policies.weighted import Weighted
from simulator.routing.python_router import PythonRouter
from simulator.routing.scoring.python import PythonScorer


def documented(base):
    """Return the classes that the docstring of a base shows."""
    lines = inspect.getdoc(base).splitlines()
    namespace = {base.__name__: base}
    exec("\n".join(line[4:] for line in lines if line.startswith("    ")), namespace)
    return namespace


def router_from(kind, view, requests=None, parameters=None):
    return kind(parameters, context_of(view, requests or workload([100] * 5)))


def test_the_documented_router_runs():
    view = view_of(3, num_blocks=100, used_blocks=[50, 90, 100])

    assert router_from(documented(PythonRouter)["MostFree"], view).choose_replica(0, 0) == 0
    tell(view, used_blocks=100)
    assert router_from(documented(PythonRouter)["MostFree"], view).choose_replica(0, 0) == -1


def test_the_documented_scorer_runs():
    kind = documented(PythonScorer)["ShortContext"]
    view = view_of(2, running_tokens=[1_000_000, 0])

    assert router_from(lambda _, context: Weighted(Weighted.Parameters(), context_of(
        view, context.workload, [(kind, 1.0, None)])), view).scores(0, 0).tolist() == [0.5, 1]


class Curious(PythonRouter):
    class Parameters(msgspec.Struct, frozen=True, kw_only=True):
        favourite: int = 0

    def choose(self, request, now_ns):
        self.seen = [(name, getattr(request, name)) for name in (
            "row", "arrival_ns", "prompt_tokens", "max_tokens", "priority", "deadline_ns", "due_ns", "expected_tokens",
            "slo_class", "tenant", "session", "model", "adapter")]
        return self.parameters.favourite


def test_the_request_shows_what_its_client_declared():
    requests = workload([100, 70], tenant=[-1, 1], session=[0, 4])
    requests.labels["tenant"] = ["lab", "office"]
    requests.demands["max_tokens"] = 9
    requests.demands["expected_tokens"] = 17
    router = router_from(Curious, view_of(3), requests, Curious.Parameters(favourite=2))

    assert router.choose_replica(1, 5) == 2

    assert dict(router.seen) == {
        "row": 1, "arrival_ns": 10**9, "prompt_tokens": 70, "max_tokens": 9, "priority": 0, "deadline_ns": -1,
        "due_ns": -1, "expected_tokens": 17, "slo_class": None, "tenant": "office", "session": 4, "model": None,
        "adapter": None}


def test_what_is_sent_and_gone_is_heard_of():
    heard = []

    class Listening(PythonRouter):
        def choose(self, request, now_ns):
            return 1

        def on_sent(self, request, replica, now_ns):
            heard.append(("sent", request.row, replica, now_ns))

        def on_left(self, request, replica, now_ns):
            heard.append(("left", request.row, replica, now_ns))

    router = router_from(Listening, view_of(2))
    send(router, 3, 7)
    router.note_left(3, 1, 9)

    assert heard == [("sent", 3, 1, 7), ("left", 3, 1, 9)]


def test_states_and_accounts_cannot_be_changed():
    router = router_from(Curious, view_of(2), parameters=Curious.Parameters())

    for array in (router.states, router.accounts):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]


def test_states_are_those_of_the_moment():
    view = view_of(2)
    router = router_from(Curious, view, parameters=Curious.Parameters())

    tell(view, waiting=[3, 4])

    assert router.states["waiting"].tolist() == [3, 4]


def test_caches_can_be_asked():
    class Asking(PythonRouter):
        uses_caches = True

        def choose(self, request, now_ns):
            return int(np.argmax(self.cached_blocks(request, now_ns)))

    view = view_of(2)
    assert router_from(Asking, view).choose_replica(0, 0) == 0
    assert view.wants_caches


def test_caches_are_kept_only_for_those_that_say_so():
    class Forgetful(PythonRouter):
        def choose(self, request, now_ns):
            return self.cached_blocks(request, now_ns)[0]

    with pytest.raises(RuntimeError, match="Forgetful must set uses_caches = True"):
        router_from(Forgetful, view_of(2)).choose_replica(0, 0)


def test_an_integer_of_numpy_is_an_index_too():
    class Plain(PythonRouter):
        def choose(self, request, now_ns):
            return self.states["waiting"].argmin()

    assert router_from(Plain, view_of(waiting=[2, 1, 2])).choose_replica(0, 0) == 1


@pytest.mark.parametrize("answer", [3, -1, 1, "0", 0.0, np.int64(3)])
def test_an_answer_that_is_no_open_replica_is_refused(answer):
    class Wrong(PythonRouter):
        def choose(self, request, now_ns):
            return answer

    with pytest.raises(ValueError, match=r"Wrong\.choose: expected None or the index of one of 3 replicas"):
        router_from(Wrong, view_of(3, is_routable=[1, 0, 1])).choose_replica(0, 0)


@pytest.mark.parametrize("answer", [[1.0], [1.0, float("nan")], [[1.0, 2.0]]])
def test_scores_that_make_no_sense_are_refused(answer):
    class Wrong(PythonScorer):
        def rate_all(self, request, now_ns):
            return answer

    with pytest.raises(ValueError, match=r"Wrong\.rate_all: expected 2 numbers"):
        Wrong(None, context_of(view_of(2), workload([10]))).scores(0, 0)


def test_one_number_scores_all_replicas():
    class Indifferent(PythonScorer):
        def rate_all(self, request, now_ns):
            return 0.25

    assert Indifferent(None, context_of(view_of(2), workload([10]))).scores(0, 0).tolist() == [0.25, 0.25]


def test_an_exception_reaches_the_caller():
    class Broken(PythonRouter):
        def choose(self, request, now_ns):
            raise LookupError("no such tenant")

    with pytest.raises(LookupError, match="no such tenant"):
        router_from(Broken, view_of(2)).choose_replica(0, 0)


@pytest.mark.parametrize(("base", "ask"), [
    (PythonRouter, lambda router: router.choose_replica(0, 0)), (PythonScorer, lambda scorer: scorer.scores(0, 0))])
def test_the_base_class_says_what_to_override(base, ask):
    with pytest.raises(NotImplementedError, match=f"{base.__name__} must override"):
        ask(base(None, context_of(view_of(2), workload([10]))))
