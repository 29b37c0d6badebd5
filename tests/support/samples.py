"""Which samples of a test are left to CI: all but as many as it takes for each value of each parameter to occur.

Seeds, which are whole numbers in a row, stand for each other, and so do recorded runs of a folder: of GROUP one is run.
A seed that stands alone once found something, and is run. Of tests with at most FEW samples all are run.

CI runs at most SEEDS further samples of a test whose samples are drawn; recorded runs are all run.
"""
from collections import Counter
from math import gcd
from pathlib import Path, PosixPath, WindowsPath

import pytest

from support.goldens import GOLDENS

FEW = 10
GROUP = 10
SEEDS = 30
TESTS = Path(__file__).resolve().parents[1]
ROOMS = frozenset((TESTS.parent / ".ci/rooms").read_text().split())
LIKE = (int, PosixPath, WindowsPath)        # types of values that may stand for each other


def leave_to_ci(items):
    """Mark further samples as `ci`, and those that CI has no time for as `night`."""
    tests = {}
    for item in items:
        tests.setdefault((item.parent, getattr(item, "originalname", item.name)), []).append(item)
    for samples in tests.values():
        if len(samples) > FEW:
            left = further([values_of(sample) for sample in samples])
            for number in left:
                samples[number].add_marker(pytest.mark.ci)
            for number in left[SEEDS:]:
                if is_drawn(samples[number]):
                    samples[number].add_marker(pytest.mark.night)


def leave_to_checks(items):
    """Mark as `checked` the tests that .ci/checked runs in a build with run-time checks."""
    depth, paths = len(TESTS.parts), {item.path for item in items}
    checked = {path for path in paths if path.parts[:depth] == TESTS.parts and path.parts[depth] in ROOMS}
    for item in items:
        if item.path in checked and not {mark.name for mark in item.iter_markers()} & {"slow", "night"}:
            item.add_marker(pytest.mark.checked)


def is_drawn(sample):
    """Return whether a sample is drawn, and no recorded run."""
    is_recorded = any(isinstance(value, Path) for value in sample.callspec.params.values())
    return not (is_recorded or sample.path.is_relative_to(TESTS / "parity"))


def values_of(item):
    """Return {names: values} of a sample, by each `parametrize` and each fixture with parameters."""
    params = item.callspec.params
    axes = [names_of(mark) for mark in item.iter_markers("parametrize")]
    fixtures = params.keys() - {name for axis in axes for name in axis}
    return {axis: tuple(params[name] for name in axis) for axis in [*axes, *((name,) for name in sorted(fixtures))]}


def names_of(mark):
    names = mark.args[0] if mark.args else mark.kwargs["argnames"]
    return tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else tuple(names)


def further(samples):
    """Return which of some samples, {names: values} each, show no value that those before them do not show.

    They are looked at in strides of about 0.618 of them all. In their own order, the first value of one parameter would
    come with all values of another.
    """
    kinds = kinds_of(samples)
    shown, left = set(), []
    stride = next(step for step in range(round(0.618 * len(samples)), 0, -1) if gcd(step, len(samples)) == 1)
    for turn in range(len(samples)):
        number = turn * stride % len(samples)
        values = {(axis, *(kinds.get((name, value), id(value)) if type(value) in LIKE else id(value)
                           for name, value in zip(axis, row))) for axis, row in samples[number].items()}
        if values <= shown:
            left.append(number)
        shown |= values
    return left


def kinds_of(samples):
    """Return {(name, value): kind} of seeds and recorded runs, of parameters with more than FEW of them."""
    values = {}
    for axes in samples:
        for axis, row in axes.items():
            for name, value in zip(axis, row):
                if type(value) in LIKE:
                    values.setdefault(name, {})[value] = None
    kinds = {}
    for name, found in values.items():
        if len(found) > FEW:
            places = Counter()
            for value in found:
                if isinstance(value, Path) and value.is_relative_to(GOLDENS):
                    kinds[name, value] = value.parent, places[value.parent] // GROUP
                    places[value.parent] += 1
                elif isinstance(value, int) and (value - 1 in found or value + 1 in found):
                    kinds[name, value] = value // GROUP
    return kinds
