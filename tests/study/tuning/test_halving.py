"""A third goes on with three times as many requests."""
import numpy as np

from simulator.study.tuning.halving import rungs, survivors

NONE = np.full(9, np.nan)


def test_twenty_seven_candidates_cost_a_seventh():
    counts = rungs(27, 1, 27)
    assert counts == [1, 3, 9, 27]
    assert sum(candidates * count for candidates, count in zip((27, 9, 3, 1), counts, strict=True)) == 108


def test_rounds_end_at_the_most_requests_and_with_one_candidate():
    assert rungs(27, 1000, 5000) == [1000, 3000, 5000]
    assert rungs(2, 100, 10_000) == [100, 300]
    assert rungs(1, 100, 10_000) == [100]
    assert rungs(5, 200, 100) == [100]


def test_best_third_goes_on():
    scores = np.array([5.0, 1, 9, 3, 7, 2, 8, 4, 6])
    assert survivors(scores, NONE).tolist() == [2, 6, 4]
    assert survivors(scores[:4], NONE[:4]).tolist() == [2, 0]           # 4 / 3, rounded up


def test_who_overlaps_the_third_goes_on():
    # 9, 8 and 7 are the third; 7 +- 0.5 is reached by 6 +- 0.5, not by 5 +- 0.5.
    scores = np.array([5.0, 1, 9, 3, 7, 2, 8, 4, 6])
    assert survivors(scores, np.full(9, 0.5)).tolist() == [2, 6, 4, 8]


def test_who_cannot_run_is_out_and_equals_keep_their_order():
    assert survivors(np.array([np.nan, 2.0, 2.0, np.nan, 1.0]), NONE[:5]).tolist() == [1, 2]
    assert survivors(np.array([np.nan]), NONE[:1]).tolist() == []
