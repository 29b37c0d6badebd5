"""Admission policies written in Python."""
import inspect

import pytest

from simulator.admission.base import AdmissionContext
from simulator.admission.python_admission import PythonAdmission
from simulator.signals.view import View
from support.workloads import plain_workload


def policy_of(kind, view):
    return kind(None, AdmissionContext(view, plain_workload([0, 1], [100, 9000], 5), {}))


def documented():
    """Return the class that the docstring shows."""
    namespace = {"PythonAdmission": PythonAdmission}
    exec("\n".join(line[4:] for line in inspect.getdoc(PythonAdmission).splitlines() if line.startswith("    ")),
         namespace)
    return namespace["ShortPrompts"]


def test_the_documented_policy_runs():
    view = View(2)
    policy = policy_of(documented(), view)

    assert policy.lets_in(0, 0) and policy.lets_in(1, 0)
    view.account_array["in_flight"] = 60
    assert policy.lets_in(0, 0) and not policy.lets_in(1, 0)


def test_states_cannot_be_written():
    policy = policy_of(documented(), View(2))

    with pytest.raises(ValueError, match="read-only"):
        policy.accounts["in_flight"] = 1


def test_a_policy_that_does_not_answer_says_so():
    with pytest.raises(NotImplementedError, match="must override lets_pass"):
        policy_of(PythonAdmission, View(1)).lets_in(0, 0)


def test_a_policy_that_forgets_to_decide_says_so():
    class Forgets(PythonAdmission):
        def lets_pass(self, request, now_ns):
            request.prompt_tokens > 3               # noqa: B015 -- the fault that is shown

    with pytest.raises(TypeError, match=r"^Forgets.lets_pass: expected True or False, found None$"):
        policy_of(Forgets, View(1)).lets_in(0, 0)


def test_a_comparison_of_numpy_is_a_decision():
    class Full(PythonAdmission):
        def lets_pass(self, request, now_ns):
            return self.accounts["in_flight"].sum() > 3         # numpy.bool

    assert not policy_of(Full, View(1)).lets_in(0, 0)
