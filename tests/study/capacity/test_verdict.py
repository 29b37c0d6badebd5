"""What runs with one value say."""
import math

import pytest

from simulator.errors import InputErrors
from simulator.study.capacity.bounds import Bound, Bounds, bounds_of_options, check_keys, read_bounds
from simulator.study.capacity.verdict import Observation, Rules, judge, weigh

TTFT = Bound("ttft_ms.p99", 500.0, True)


def runs(*values, **facts):
    return [Observation(seed, {"ttft_ms.p99": value}, **facts) for seed, value in enumerate(values)]


def rules(*bounds, **others):
    return Rules(Bounds(bounds or (TTFT,)), **others)


@pytest.mark.parametrize(("values", "word"), [
    ((400, 410, 405), "pass"),              # 405 -+ 12.4
    ((600, 610, 605), "fail"),
    ((490, 470, 520), "pass, undecided"),   # 493.3 -+ 62.5
    ((490, 500, 520), "fail, undecided"),   # 503.3 -+ 37.9
    ((500, 500, 500), "pass"),              # what equals its bound keeps it
])
def test_intervals_decide_and_else_the_mean(values, word):
    verdict = weigh(1.0, runs(*values), rules())

    assert verdict.word == word
    assert verdict.estimates["ttft_ms.p99"].mean == pytest.approx(sum(values) / 3)
    assert verdict.by_seed == pytest.approx({seed: 1 - value / 500 for seed, value in enumerate(values)})


def test_one_run_alone_decides_only_where_no_more_are_allowed():
    assert weigh(1.0, runs(400), rules(max_seeds=1)).word == "pass"
    assert weigh(1.0, runs(400), rules()).word == "pass, undecided"


def test_seeds_are_doubled_until_the_interval_decides():
    asked = []

    def probe(value, seeds):
        asked.append(list(seeds))
        return [Observation(seed, {"ttft_ms.p99": 480.0 + 10 * (seed % 2)}) for seed in seeds]

    verdict = judge(1.0, probe, rules(seed=7, min_seeds=2))
    # two: 485 -+ 63.5; four: 485 -+ 9.2
    assert verdict.word == "pass" and asked == [[7, 8], [9, 10]]


@pytest.mark.parametrize(("mean", "asked"), [
    (505.0, 12),        # 505 -+ 32.5; 32 would leave 505 -+ 18.5
    (522.0, 24),        # 32 would leave 522 -+ 18.5, beyond the bound; 24 do
])
def test_seeds_that_would_not_decide_are_not_asked_for(mean, asked):
    seen = []

    def probe(value, seeds):
        seen.extend(seeds)
        return [Observation(seed, {"ttft_ms.p99": mean + 49 * (-1) ** seed}) for seed in seeds]

    verdict = judge(1.0, probe, rules())
    # Half-widths: t(11) 51.18 / sqrt(12) = 32.5, t(23) 50.05 / sqrt(24) = 21.1, t(31) 51.18 / sqrt(32) = 18.5
    assert len(seen) == asked and not verdict.passes and verdict.is_undecided == (asked == 12)


def test_seeds_are_not_doubled_beyond_the_most():
    asked = []

    def probe(value, seeds):
        asked.extend(seeds)
        return [Observation(seed, {"ttft_ms.p99": 400.0 + 200 * (seed % 2)}) for seed in seeds]

    assert judge(1.0, probe, rules(max_seeds=10)).is_undecided
    assert asked == list(range(10))


@pytest.mark.parametrize(("least", "word"), [(0.99, "fail, undecided"), (0.97, "pass"), (0.992, "fail")])
def test_c7_wilson_decides_on_the_share_of_all_runs(least, word):
    bounds = Bounds((Bound("goodput_share", least, False),))
    seen = [Observation(0, {}, num_good=485, num_requests=500), Observation(1, {}, num_good=500, num_requests=500)]

    assert weigh(1.0, seen, Rules(bounds)).word == word


@pytest.mark.parametrize(("facts", "sentence"), [
    ({"faults": ("2 requests did not end",)}, "2 requests did not end"),
    ({"backlog": "growing"}, "backlog: growing in 3 of 3 runs"),
])
def test_what_is_wrong_with_a_run_fails_it_whatever_its_values(facts, sentence):
    verdict = weigh(1.0, runs(1, 2, 3, **facts), rules())

    assert verdict.word == "fail" and verdict.sentence == sentence and math.isnan(verdict.margin)


def test_too_few_requests_to_tell_whether_a_queue_grows_are_no_fail():
    verdict = weigh(1.0, runs(1, 2, 3, backlog="too short to tell"), rules())

    assert verdict.word == "thin" and not verdict.passes
    assert verdict.sentence == "thin: too few requests for backlog, 40 would do"
    assert weigh(1.0, runs(900, 901, 902, backlog="too short to tell"), rules()).word == "fail"     # of another bound
    assert weigh(1.0, runs(1, 2, 3, backlog="too short to tell"), Rules(Bounds((TTFT,), False))).word == "pass"


def test_a_trend_in_fewer_than_half_of_the_runs_is_chance():
    seen = [*runs(400, 401, 402), Observation(3, {"ttft_ms.p99": 401.0}, backlog="growing")]

    assert weigh(1.0, seen, rules()).word == "pass"


def test_a_backlog_that_grows_may_be_allowed():
    assert weigh(1.0, runs(1, 2, 3, backlog="growing"), Rules(Bounds((TTFT,), wants_stable=False))).word == "pass"


def test_a_value_that_is_not_there_fails():
    verdict = weigh(1.0, runs(400, None, 401), rules())

    assert verdict.word == "fail"
    assert verdict.sentence == "ttft_ms.p99: there is nothing to measure in 1 of 3 runs"


def test_the_least_margin_binds():
    tpot = Bound("tpot_ms.p99", 50.0, True)
    seen = [Observation(seed, {"ttft_ms.p99": 400.0, "tpot_ms.p99": 61.2}) for seed in range(3)]
    verdict = weigh(1.0, seen, rules(TTFT, tpot))

    assert (verdict.binding, verdict.sentence) == ("tpot_ms.p99", "tpot_ms.p99: 61.2 > 50")
    assert verdict.margin == pytest.approx(-0.224)


def test_bounds_of_a_file_and_of_options_are_the_same():
    table = {"ttft_ms": {"p99": {"max": 500}}, "goodput_share": {"min": 0.99}, "backlog": "any",
             "request_throughput": {"min": 3.0}}

    assert read_bounds(table, "study.slo") == bounds_of_options(
        ["ttft_ms.p99=500", "goodput_share=0.99", "backlog=any", "request_throughput>=3"])


@pytest.mark.parametrize(("text", "fault"), [
    ("ttft_ms.p99=-5", '--slo."ttft_ms.p99".max: expected a number >= 0, found -5.0: no ttft_ms.p99 is below 0'),
    ("request_throughput>=-1",
     '--slo."request_throughput".min: expected a number >= 0, found -1.0: no request_throughput is below 0'),
    ("ttft_ms.p99=nan", '--slo."ttft_ms.p99".max: expected a finite number, found nan'),
    ("ttft_ms.p99=-inf", '--slo."ttft_ms.p99".max: expected a finite number, found -inf')])
def test_bounds_that_no_number_can_keep_are_refused(text, fault):
    with pytest.raises(InputErrors) as caught:
        bounds_of_options([text])

    assert list(caught.value.faults) == [fault]


def test_a_backlog_may_shrink():
    assert bounds_of_options(["in_system.growth_per_s=-1"]).bounds[0].limit == -1.0


def test_all_faults_of_bounds_are_told_at_once():
    table = {"ttft_ms.p99": {"mx": 5}, "tpot_ms.p99": {"max": "fast"}, "goodput_share": {"max": 0.5},
             "backlog": "small"}
    with pytest.raises(InputErrors) as told:
        read_bounds(table, "a.toml: study.slo")

    assert told.value.faults == (
        'a.toml: study.slo.backlog: expected "stable" or "any", found "small"',
        'a.toml: study.slo."ttft_ms.p99".mx: unknown key; did you mean max?; expected max or min',
        'a.toml: study.slo."tpot_ms.p99".max: expected a finite number, found "fast"',
        'a.toml: study.slo."goodput_share": expected {min = SHARE} above 0 and at most 1, found {max = 0.5}',
    )


@pytest.mark.parametrize("table", [{}, None, 3, {"backlog": "any"}])
def test_no_bound_at_all_is_refused(table):
    with pytest.raises(InputErrors, match="expected at least one bound"):
        read_bounds(table, "study.slo")


def test_a_key_that_no_summary_has_is_told_with_the_nearest():
    with pytest.raises(InputErrors, match=r'summary\.json has no number "ttft\.p99"'):
        check_keys(Bounds((Bound("ttft.p99", 1.0, True),)), ["ttft_ms.p99", "duration_s"], "--slo")
