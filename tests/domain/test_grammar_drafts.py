"""Drafts that a grammar admits."""
import numpy as np
import pytest

from simulator.domain import records
from simulator.domain.grammar_drafts import GrammarDrafts


def drafts_of(valid_rate, grammars=(0, 1, -1), numbers=None, key=7):
    demands = np.zeros(len(grammars), records.DEMAND)
    demands["grammar"] = grammars
    return GrammarDrafts(
        valid_rate, demands, np.arange(len(grammars), dtype=np.uint64) if numbers is None else numbers, key)


def test_all_or_none_are_admitted_at_the_ends():
    assert [drafts_of(1.0).admitted_drafts(row, 50, 4) for row in range(3)] == [4, 4, 4]
    assert [drafts_of(0.0).admitted_drafts(row, 50, 4) for row in range(3)] == [0, 0, 4]    # the last has no grammar


@pytest.mark.parametrize("rate", [0.3, 0.8])
def test_each_draft_is_admitted_at_the_rate_where_all_before_it_are(rate):
    drafts = drafts_of(rate)
    found = np.array([drafts.admitted_drafts(0, 1 + 4 * i, 3) for i in range(20_000)])      # places of their own
    # Of 20,000 draws the share is off by 4 deviations, 0.014, in one run of 16,000.
    assert [(found >= count).mean() for count in (1, 2, 3)] == pytest.approx([rate, rate**2, rate**3], abs=0.014)


def test_a_place_is_admitted_or_not_whatever_is_drafted_before_it():
    drafts = drafts_of(0.5)
    admits = [drafts.admitted_drafts(0, place, 1) == 1 for place in range(60)]
    for place in range(50):
        expected = next((i for i in range(8) if not admits[place + i]), 8)
        assert drafts.admitted_drafts(0, place, 8) == expected


def test_draws_go_by_the_number_of_a_request_not_by_its_row():
    numbers = np.array([9, 4, 4], np.uint64)
    by_row, renumbered = drafts_of(0.5, (0,) * 10), drafts_of(0.5, (0, 5, 2), numbers)
    for place in range(50):
        assert renumbered.admitted_drafts(0, place, 5) == by_row.admitted_drafts(9, place, 5)
        assert renumbered.admitted_drafts(1, place, 5) == renumbered.admitted_drafts(2, place, 5)
