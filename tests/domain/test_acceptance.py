"""Drafts that are accepted."""
import numpy as np

from simulator.domain.acceptance import Acceptance

WEIGHTS = [0.3, 0.2, 0.5]


def test_what_is_drawn_goes_by_the_number_of_a_request_not_by_its_row():
    by_row = Acceptance(None, WEIGHTS, 10, 3)
    numbered = Acceptance(None, WEIGHTS, 3, 3, np.array([7, 2, 2**64 - 1], np.uint64))

    for row, number in ((0, 7), (1, 2)):
        drawn = [numbered.accepted_drafts(row, step) for step in range(50)]
        assert drawn == [by_row.accepted_drafts(number, step) for step in range(50)]
        assert set(drawn) == {0, 1, 2}
