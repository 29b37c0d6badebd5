"""Which samples of a test are left to CI: all but as many as it takes for each value of each parameter to occur.

Seeds, which are whole numbers in a row, stand for each other: of GROUP one is run. A seed that stands alone once found
something, and is run. Of tests with at most FEW samples all are run.
"""
from itertools import groupby
from math import gcd

import pytest

FEW = 20
GROUP = 5


def leave_to_ci(items):
    """Mark further samples as `ci`; `items` are in the order in which pytest finds them."""
    for _, group in groupby(items, key=lambda item: (item.parent, getattr(item, "originalname", item.name))):
        samples = list(group)
        if len(samples) > FEW:
            for number in further([values_of(sample) for sample in samples]):
                samples[number].add_marker(pytest.mark.ci)


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
    seeds = seeds_of(samples)
    shown, left = set(), []
    stride = next(step for step in range(round(0.618 * len(samples)), 0, -1) if gcd(step, len(samples)) == 1)
    for turn in range(len(samples)):
        number = turn * stride % len(samples)
        values = {(axis, *(kind_of(value, seeds.get(name, ())) for name, value in zip(axis, row)))
                  for axis, row in samples[number].items()}
        if values <= shown:
            left.append(number)
        shown |= values
    return left


def kind_of(value, seeds):
    """Return what values that stand for each other share."""
    return value // GROUP if type(value) is int and value in seeds else id(value)


def seeds_of(samples):
    """Return {name: seeds}: of parameters with more than FEW values the whole numbers that have a neighbour."""
    values = {}
    for axes in samples:
        for axis, row in axes.items():
            for name, value in zip(axis, row):
                if type(value) is int:
                    values.setdefault(name, set()).add(value)
    return {name: {value for value in numbers if not numbers.isdisjoint((value - 1, value + 1))}
            for name, numbers in values.items() if len(numbers) > FEW}
