"""Who asks for which LoRA adapter."""
from collections import Counter

import numpy as np
import pytest

from simulator.domain.traits import Adapters
from simulator.errors import InputErrors
from simulator.workload.adapters import with_adapters
from simulator.workload.columns import Columns, Waits

NAMES = ("a", "b", "c")


def requests(count, **columns):
    """Return requests that come one millisecond apart."""
    return Columns(np.arange(count) * 1_000_000, np.full(count, 10), np.full(count, 5), **columns)


def adapters(columns, seed=0, **keys):
    """Return the adapter of each request; None: the base model."""
    codes, names = with_adapters(columns, Adapters(names=NAMES, **keys), seed).labels["adapter"]
    return [None if code < 0 else names[code] for code in codes.tolist()]


def test_l1_adapters_take_turns():
    assert adapters(requests(5), assign="round_robin") == ["a", "b", "c", "a", "b"]


def test_the_requests_of_a_play_have_one_together():
    # two sessions of two turns, then one of one; in the trace their turns alternate
    none = np.empty(0, np.int64)
    waits = Waits(np.array([7, 3, 7, 3, 5]), none, none, none, np.empty(0, bool))
    columns = requests(5, waits=waits)
    drawn = adapters(requests(300, waits=Waits(np.arange(300) // 3, none, none, none, np.empty(0, bool))))

    assert adapters(columns, assign="round_robin") == ["a", "b", "a", "b", "c"]
    assert all(len(set(drawn[first:first + 3])) == 1 for first in range(0, 300, 3))
    assert set(drawn) == set(NAMES)


@pytest.mark.parametrize(("keys", "shares"), [
    ({}, [1 / 3, 1 / 3, 1 / 3]),
    ({"assign": "weighted", "weights": (1.0, 0.0, 3.0)}, [0.25, 0.0, 0.75]),
    ({"assign": "zipf", "exponent": 2.0}, [36 / 49, 9 / 49, 4 / 49]),           # 1 : 1/4 : 1/9
    ({"assign": "round_robin", "none_share": 0.4}, [0.2, 0.2, 0.2])])
def test_shares_are_as_asked(keys, shares):
    counts = Counter(adapters(requests(30_000), **keys))

    # 4 deviations of a share of 30,000 draws are at most 0.0115
    assert [counts[name] / 30_000 for name in NAMES] == pytest.approx(shares, abs=0.0115)
    assert counts[None] / 30_000 == pytest.approx(1 - sum(shares), abs=0.0115)


def test_the_adapter_of_a_request_depends_on_its_id_alone():
    assert adapters(requests(20, request_ids=np.arange(0, 40, 2))) == adapters(requests(40))[::2]


def test_two_who_say_who_asks_for_what_are_refused():
    columns = requests(2, labels={"adapter": (np.array([0, 0]), ["x"])})

    with pytest.raises(InputErrors, match=r"workload\.adapters: the trace has a column adapter"):
        adapters(columns)


@pytest.mark.parametrize(("keys", "message"), [
    ({"names": ()}, "expected different names, at least one"),
    ({"names": ("a", "a")}, "expected different names, at least one"),
    ({"names": ("a", "b"), "assign": "weighted", "weights": (1.0,)}, "1 weights for 2 names"),
    ({"names": ("a",), "assign": "weighted", "weights": (0.0,)}, "a positive, finite sum"),
    ({"names": ("a",), "weights": (1.0,)}, 'assign = "random" does not read weights')])
def test_keys_that_contradict_each_other_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        Adapters(**keys)
