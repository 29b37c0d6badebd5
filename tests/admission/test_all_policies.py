"""What every admission policy and every saturation detector of the registry must do."""
import numpy as np
import pytest

from admission.gates import context_of, labelled_workload, made
from simulator import registry
from simulator.admission.tenant_budgets import Budget, InnerAdmission

POLICIES, DETECTORS = sorted(registry.KINDS["admission"].entries), sorted(registry.KINDS["saturation"].entries)
KEYS = {"tenant_budgets": {     # that it must have
    "budgets": (Budget(tenant="a", share=0.5), Budget(tenant="b", share=0.5)),
    "inner": InnerAdmission(policy="always", parameters=None)}}
DETECTOR_KEYS = {"token_bucket": {"capacity": 200}}
CLASSES = ("critical", "standard", "batch", "sheddable", "background", "new", None) * 4
NUM_REPLICAS = 3


def context(num_slots=16):
    labelled = labelled_workload(CLASSES, ["a", "b", None, "c"] * 7, prompt_tokens=100)
    return context_of(labelled, NUM_REPLICAS, num_slots=num_slots)


def busy(view, share):
    """Have replicas report how busy they are."""
    view.state_array["num_blocks"], view.account_array["is_routable"] = 100, 1
    view.state_array["used_blocks"], view.state_array["waiting"] = 100 * share, 40 * share
    view.account_array["in_flight"] = view.account_array["dispatched"] = 40 * share
    view.touch()


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_same_requests_are_let_in_whenever_they_come_so(name, share):
    def decisions():
        given = context()
        busy(given.view, share)
        policy = made("admission", name, given, **KEYS.get(name, {}))
        return [policy.lets_in(row, row * 10**8) for row in range(len(CLASSES))]

    assert decisions() == decisions()
    assert set(decisions()) <= {True, False}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_takes_no_more_when_replicas_are_busier(name):
    def number(share):
        given = context()
        busy(given.view, share)
        policy = made("admission", name, given, **KEYS.get(name, {}))
        return sum(policy.lets_in(row, 0) for row in range(len(CLASSES)))

    assert number(1.0) <= number(0.5) <= number(0.0)


@pytest.mark.parametrize("name", DETECTORS)
def test_saturation_is_a_number_that_grows_with_what_replicas_have_to_do(name):
    given = context()
    detector, found = made("saturation", name, given, **DETECTOR_KEYS.get(name, {})), []
    for share in (0.0, 0.25, 0.5, 1.0):
        busy(given.view, share)
        found.append(detector.measure(0))

    assert np.isfinite(found).all() and min(found) >= 0 and found == sorted(found)
