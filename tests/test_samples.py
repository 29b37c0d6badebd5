"""What README.md's command leaves to CI is further samples, and no value of any parameter."""
from types import SimpleNamespace

import pytest

from support.goldens import GOLDENS
from support.samples import FEW, GROUP, SEEDS, TESTS, further, leave_to_checks, leave_to_ci


def samples_of(*axes):
    """Return the product of axes, {names: rows} each."""
    found = [{}]
    for axis in axes:
        found = [sample | {names: row} for sample in found for names, rows in axis.items() for row in rows]
    return found


def kept(samples):
    left = set(further(samples))
    return [sample for number, sample in enumerate(samples) if number not in left]


PATHS = {("path",): [(f"{number}.json",) for number in range(40)]}
RUNS = {("path",): [(GOLDENS / folder / f"{number}.json",) for folder, count in (("a", 30), ("b", 2))
                     for number in range(count)]}
WAYS = {("fast_forward",): [(True,), (False,)]}


def test_every_value_of_every_parameter_is_kept():
    samples = kept(samples_of(PATHS, WAYS))

    assert {sample[("path",)] for sample in samples} == set(PATHS[("path",)])
    assert len(samples) == 40                           # and once
    assert 12 <= sum(sample[("fast_forward",)] == (True,) for sample in samples) <= 28


def test_rows_of_one_table_are_all_kept():
    rows = [(name, number) for name in "abcdef" for number in (10, 20, 30, 40)]

    assert not further(samples_of({("name", "number"): rows}))


@pytest.mark.parametrize("names", [("seed",), ("draw", "seed")])
def test_of_seeds_in_a_row_one_of_a_group_is_kept_and_each_that_stands_alone(names):
    seeds = [*range(100, 200), 418, 50153]
    samples = kept(samples_of({names: [(*("draw",)[:len(names) - 1], seed) for seed in seeds]}))

    numbers = [sample[names][-1] for sample in samples]
    assert {418, 50153} < set(numbers)
    assert len(numbers) == 100 // GROUP + 2


def test_of_recorded_runs_one_of_a_group_is_kept_and_of_each_folder_one():
    runs = [path for sample in kept(samples_of(RUNS, WAYS)) for path in sample[("path",)]]

    assert sorted(path.parent.name for path in runs) == ["a"] * (30 // GROUP) + ["b"]


def test_few_numbers_in_a_row_are_values():
    assert not further(samples_of({("row",): [(number,) for number in range(FEW)]}))


def test_ways_meet_all_seeds_in_turn():
    samples = kept(samples_of({("seed",): [(seed,) for seed in range(200)]}, WAYS))

    assert len(samples) == 200 // GROUP
    assert len(samples) / 4 <= sum(sample[("fast_forward",)] == (True,) for sample in samples) <= len(samples) * 3 / 4


@pytest.mark.parametrize("seed", range(25))
def test_pytest_marks_what_is_left(request, seed):
    # Strides of 14: 0, 14, 3 (one of the ten of 0), 17 (of those of 14), 6, 20, and all three groups have one
    assert (request.node.get_closest_marker("ci") is None) == (seed in {0, 14, 20})


@pytest.mark.parametrize(("folder", "values", "spare"), [
    ("oracle", range(200), 200 - 200 // GROUP - SEEDS), ("parity", range(200), 0),
    ("oracle", [GOLDENS / "a" / f"{number}.json" for number in range(200)], 0)])
def test_ci_runs_some_seeds_and_all_recorded_runs(folder, values, spare):
    items = [Sample(TESTS / folder / "test_it.py", value) for value in values]
    leave_to_ci(items)
    leave_to_checks(items)

    assert sum("night" in item.marks for item in items) == spare
    assert sum("ci" in item.marks for item in items) == 200 - 200 // GROUP
    assert all(("checked" in item.marks) != ("night" in item.marks) for item in items)


class Sample:
    """A collected sample, as pytest shows it."""

    parent, name = None, "test"

    def __init__(self, path, value):
        self.path, self.callspec = path, SimpleNamespace(params={"seed": value})
        self.marks = {}

    def iter_markers(self, name=None):
        return [pytest.mark.parametrize("seed", []).mark] if name else list(self.marks.values())

    def get_closest_marker(self, name):
        return self.marks.get(name)

    def add_marker(self, mark):
        self.marks[mark.name] = mark.mark
