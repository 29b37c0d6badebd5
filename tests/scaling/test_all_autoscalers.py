"""What every autoscaler of the registry must do."""
from dataclasses import replace

import numpy as np
import pytest

from scaling.test_planner import DECODE, PREFILL
from scaling.test_policies import observed, variant
from simulator import registry
from simulator.domain import records
from simulator.scaling.mix import MixProfile

KEYS = {                        # that it must have
    "mix": {"input_tokens": (500,), "output_tokens": (100,), "profiles": (
        MixProfile(pool="pool 0", requests_per_s=((2.0,),)),)},
    "queueing": {"alpha": 6.0, "beta": 0.02, "gamma": 0.0001},
    "planner": {"itl_ms": 20.0, "prefill_profile": PREFILL, "decode_profile": DECODE},
    "slo_attainment": {"ttft_ms": 500.0}}
LOADS = ((), (0,), (0, 0, 0), (95, 95), (100, 100, 100, 100), (5, 90))
AUTOSCALERS = sorted(registry.KINDS["autoscaler"].entries)


def autoscaler(name):
    chosen = registry.load("autoscaler", name)
    return chosen(registry.parameters_of(chosen)(**KEYS.get(name, {})))


def finished(count):
    """Return requests that have left, late."""
    rows = np.zeros(count, records.REQUEST)
    rows["prompt_tokens"], rows["output_tokens"], rows["status"] = 500, 100, records.COMPLETED
    rows["first_token_ns"], rows["completed_ns"] = 2 * 10**9, 9 * 10**9
    return rows


def situations(name):
    role = "decode" if registry.load("autoscaler", name).needs_roles else "both"
    for used in LOADS:
        for waiting in (0, 50):
            for late in (0, 20):
                yield observed(*pools(used, waiting, role), queued=waiting, finished=finished(late))


def pools(used, waiting, role):
    first = variant(0, used, waiting=waiting, in_flight=waiting)
    return (first,) if role == "both" else tuple(
        replace(first, index=i, name=part, role=part) for i, part in enumerate(("prefill", role)))


@pytest.mark.parametrize("name", AUTOSCALERS)
def test_changes_are_whole_numbers_of_pools_that_are_there(name):
    policy = autoscaler(name)
    for seen in situations(name):
        changes = policy.decide(seen)
        assert changes.keys() <= {each.index for each in seen.variants}
        assert all(isinstance(change, int) for change in changes.values())


@pytest.mark.parametrize("name", AUTOSCALERS)
def test_the_same_is_decided_whenever_the_same_is_seen(name):
    first, second = autoscaler(name), autoscaler(name)
    assert [first.decide(seen) for seen in situations(name)] == [second.decide(seen) for seen in situations(name)]


@pytest.mark.parametrize("name", AUTOSCALERS)
def test_what_is_seen_stays_as_it_is(name):
    policy = autoscaler(name)
    for seen in situations(name):
        before = [(each.states.copy(), each.accounts.copy()) for each in seen.variants]
        policy.decide(seen)
        for each, (states, accounts) in zip(seen.variants, before, strict=True):
            assert (each.states == states).all() and (each.accounts == accounts).all()
