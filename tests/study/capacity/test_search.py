"""Searches of functions whose answer is known."""
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.study.capacity import vidur
from simulator.study.capacity.interval import interval_of
from simulator.study.capacity.search import BISECTION, ILLINOIS, Search, Span, repeated
from study.capacity.functions import Judged
from support.goldens import GOLDENS

# Delays of Vidur's recorded search (goldens/vidur/capacity_search), s at requests/s
RECORDED = {2.0: 1.339853657042854, 2.25: 2.1716697723851675, 2.375: 3.8005688827262567, 2.4375: 4.812809264723229,
            2.46875: 5.319159702038834, 2.5: 6.045572177346228, 3.0: 16.513313956208073}


def interpolated(rate):
    return float(np.interp(rate, list(RECORDED), list(RECORDED.values())))


def cliff(rate):
    return 2.0 if rate <= 3.9 else 600.0


def holed(rate):
    return 1.0 if rate <= 3.5 or 5.5 <= rate <= 7 else 3.0


def searched(function, most, start, span, method=ILLINOIS):
    judged = Judged(function, most)
    return Search(judged, span, method).run(start), judged.probes


def test_c1_vidurs_search_probes_what_was_recorded():
    probes = []

    def delay(rate):
        probes.append(rate)
        return RECORDED[rate]

    assert vidur.search(2.0, delay) == 2.4375
    assert probes == [2, 3, 2.5, 2.25, 2.375, 2.4375, 2.46875]


@pytest.mark.skipif(not (GOLDENS / "vidur").is_dir(), reason="../shared/goldens is absent")
def test_c1_the_delays_are_those_of_the_golden():
    golden = json.loads((GOLDENS / "vidur/capacity_search/result.json").read_text())

    assert {rate: delay for rate, _, delay in golden["log"]} == RECORDED
    assert golden["result"]["max_qps_under_sla"] == 2.4375


def test_c1_bisection_ends_around_the_root():
    found, probes = searched(interpolated, 5.0, 2.0, Span(2.0, 3.0, 0.01), BISECTION)

    assert probes[:8] == [2.0, 3.0, 2.5, 2.25, 2.375, 2.4375, 2.46875, 2.453125]
    assert (found.good.value, found.bad.value, found.at_bound) == (2.4375, 2.453125, None)    # the root is 2.44905


def test_c1_illinois_ends_around_the_root_with_fewer_probes():
    found, probes = searched(interpolated, 5.0, 2.0, Span(2.0, 3.0, 0.01))

    assert found.good.value <= 2.44905 < found.bad.value <= found.good.value * 1.01
    assert len(probes) - 2 < 8          # without the controls


def test_c2_vidurs_search_ends_below_a_rate_that_passed():
    probes = []
    assert vidur.search(2.1, lambda rate: probes.append(rate) or cliff(rate), vidur.VidurRules(most_probes=7)) == (
        pytest.approx(2.846484375))
    assert probes == pytest.approx([2.1, 3.15, 3.675, 6.0375, 3.346875, 4.6921875, 2.846484375])


@pytest.mark.parametrize("start", [0.1, 2.1, 3.9, 4.0, 37.0, 1000.0])
@pytest.mark.parametrize("method", [BISECTION, ILLINOIS])
def test_c2_ours_ends_at_the_cliff(start, method):
    found, probes = searched(cliff, 5.0, start, Span(0.1, 1000.0), method)

    assert found.good.value <= 3.9 < found.bad.value <= found.good.value * 1.01
    assert found.answer == max(value for value in probes if value <= 3.9)
    assert found.is_monotone


def test_c5_where_nothing_passes_there_is_no_answer():
    found, probes = searched(lambda rate: 9.0, 5.0, 1.0, Span(0.1, 1000.0))

    assert (found.answer, found.good, found.at_bound) == (None, None, "from")
    assert found.bad.value == min(probes) == 0.1
    assert found.bad.sentence == "delay: 9 > 5"


def test_c5_where_everything_passes_the_answer_is_the_bound():
    found, _ = searched(lambda rate: 1.0, 5.0, 1.0, Span(0.1, 1000.0))

    assert (found.answer, found.bad, found.at_bound) == (1000.0, None, "to")


@pytest.mark.parametrize("method", [BISECTION, ILLINOIS])
def test_c5_a_hole_is_found_by_a_control(method):
    found, probes = searched(holed, 2.0, 6.0, Span(0.1, 1000.0), method)

    assert not found.is_monotone
    assert 7 / 1.01 <= found.before.answer <= 7
    assert 3.5 / 1.01 <= found.answer <= 3.5
    if method == BISECTION:
        assert found.before.answer == 6.984375
        assert found.before_fail == pytest.approx(0.7 * 6.984375) == pytest.approx(4.889, abs=1e-3)
        assert found.before_fail in probes


def test_the_least_number_of_replicas_is_bracketed_by_one_that_fails():
    found, probes = searched(lambda replicas: 100 / replicas, 15.0, 1, Span(1, 64, is_whole=True, is_least=True))

    assert (found.answer, found.bad.value) == (7, 6)            # 100 / 7 = 14.3, 100 / 6 = 16.7
    assert all(isinstance(value, int) for value in probes)
    assert {8, 10} <= set(probes)                               # controls: ceil(1.1 x 7), ceil(1.4 x 7)


def test_one_replica_that_suffices_is_at_the_bound():
    found, _ = searched(lambda replicas: 1.0, 15.0, 5, Span(1, 64, is_whole=True, is_least=True))

    assert (found.answer, found.at_bound) == (1, "from")


def test_replicas_that_never_suffice_are_at_the_other_bound():
    found, probes = searched(lambda replicas: 99.0, 15.0, 5, Span(1, 64, is_whole=True, is_least=True))

    assert (found.answer, found.at_bound) == (None, "to")
    assert probes == [5, 10, 20, 40, 64]


@given(root=st.floats(0.2, 900), start=st.floats(0.1, 1000), power=st.floats(0.2, 6),
       method=st.sampled_from([BISECTION, ILLINOIS]))
def test_a_monotone_function_is_bracketed_within_the_tolerance(root, start, power, method):
    found, probes = searched(lambda rate: (rate / root)**power, 1.0, start, Span(0.1, 1000.0), method)

    assert found.good.value <= root * (1 + 1e-9) and root <= found.bad.value
    assert found.bad.value / found.good.value - 1 <= 0.01
    assert len(probes) == len(set(probes)) <= 45


@given(passes=st.lists(st.booleans(), min_size=30, max_size=30), start=st.integers(1, 30), least=st.booleans())
def test_no_answer_lies_outward_of_a_fail_that_was_seen(passes, start, least):
    judged = Judged(lambda value: float(not passes[value - 1]), 0.5)
    span = Span(1, 30, is_whole=True, is_least=least)
    search = Search(judged, span)
    found = search.run(start)

    if found.good is None:
        assert not passes[span.inner - 1]
    else:
        assert passes[found.answer - 1]
        fails = [value for value, verdict in search.verdicts.items() if not verdict.passes]
        assert not any(span.is_beyond(found.answer, value) for value in fails)


def noisy(spread):
    # the seed shifts the root: seed s has it at 10 (1 + spread (s - 1))
    return lambda rate, seed: rate / (1 + spread * (seed - 1))


def test_two_undecided_ends_end_the_search():
    judged = Judged(noisy(0.1), 10.0, is_random=True, max_seeds=3)
    found = Search(judged, Span(0.1, 1000.0, 1e-6)).run(8.0)

    assert found.is_noisy and found.good.is_undecided and found.bad.is_undecided
    assert len(judged.probes) < 12


def test_the_interval_is_that_of_the_seeds_roots():
    # roots of the three seeds: 9.9, 10, 10.1; t(0.975, 2) = 4.302653, s = 0.1: 10 -+ 0.248
    judged = Judged(lambda rate, seed: 5 + (rate - 9.9 - 0.1 * seed), 5.0, is_random=True, max_seeds=3)
    good, bad = judged(9.98), judged(10.03)

    assert interval_of(good, bad, Span(0.1, 1000.0)) == pytest.approx((10 - 0.248414, 10 + 0.248414), abs=1e-5)


@pytest.mark.parametrize(("others", "ends"), [
    ((9.0, 11.0), (9.751586, 10.248414)),           # these pass and fail for sure, and are farther off
    ((9.76, 11.0), (9.76, 10.248414)), ((9.0, 10.24), (9.751586, 10.24)),       # these are nearer
    ((9.9, 10.1), (9.9, 10.1)), ((), (9.98, 10.03))])       # undecided, but nothing beyond was tested
def test_the_interval_ends_where_runs_decided_and_where_nothing_was_tested(others, ends):
    judged = Judged(lambda rate, seed: 5 + (rate - 9.9 - 0.1 * seed), 5.0, is_random=True, max_seeds=3)
    tested = [judged(value) for value in (9.98, 10.03, *others)]
    assert [verdict.is_undecided for verdict in tested[:2]] == [True, True]

    found = interval_of(*tested[:2], Span(0.1, 1000.0), verdicts=tested)
    assert found == pytest.approx(ends, abs=1e-5)


def test_equal_seeds_leave_no_width():
    judged = Judged(lambda rate: rate, 10.0)

    assert interval_of(judged(9.95), judged(10.04), Span(0.1, 1000.0)) == pytest.approx((10.0, 10.0))


def test_an_answer_that_fails_with_new_seeds_is_stepped_down():
    answer, passes, seen = repeated(10.0, Judged(lambda rate: rate, 9.85), Span(0.1, 1000.0))

    assert passes and answer == pytest.approx(9.801)            # 10, 9.9, 9.801
    assert [each.passes for each in seen] == [False, False, True]


def test_stepping_down_has_an_end():
    answer, passes, seen = repeated(10.0, Judged(lambda rate: rate, 1.0), Span(0.1, 1000.0))

    assert not passes and len(seen) == 6 and answer == pytest.approx(10 * 0.99**5)


def test_replicas_are_stepped_up():
    answer, passes, _ = repeated(7, Judged(lambda replicas: 100 / replicas, 13.0),
                                 Span(1, 64, is_whole=True, is_least=True))

    assert passes and answer == 8
