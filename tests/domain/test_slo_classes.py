"""Priorities and bounds of SLO classes."""
import msgspec
import pytest

from simulator.domain.slo_classes import Bounds, SloClass, bounds_of, by_name, class_of, priority_of


@pytest.mark.parametrize(("name", "priority"), [
    ("critical", 4), ("standard", 3), ("batch", -1), ("sheddable", -2), ("background", -3), ("unheard of", 3),
    (None, 3),
])
def test_priorities_of_names(name, priority):
    assert priority_of(class_of(name, by_name(()))) == priority


def test_a_given_priority_wins():
    classes = by_name([SloClass(name="batch", priority=0), SloClass(name="mine", priority=-7)])

    assert [priority_of(class_of(name, classes)) for name in ("batch", "mine", "critical")] == [0, -7, 4]


def test_requests_without_a_class_are_standard():
    classes = by_name([SloClass(name="standard", priority=1, ttft_ms=5.0)])

    assert class_of(None, classes).ttft_ms == 5.0


def test_two_classes_of_one_name_are_refused():
    with pytest.raises(ValueError, match='two are named "a"'):
        by_name([SloClass(name="a"), SloClass(name="b"), SloClass(name="a")])


def test_bounds_that_a_class_does_not_give_are_those_of_all():
    general = Bounds(ttft_ms=1.0, e2el_ms=3.0)

    assert bounds_of(SloClass(name="a", ttft_ms=9.0, tpot_ms=2.0), general) == Bounds(
        ttft_ms=9.0, tpot_ms=2.0, e2el_ms=3.0)


@pytest.mark.parametrize("wrong", [
    {"name": ""}, {"name": "a", "ttft_ms": 0}, {"name": "a", "priority": 101}, {"name": "a", "x": 1}])
def test_wrong_values_are_refused(wrong):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, SloClass)
