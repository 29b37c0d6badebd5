"""AIPerf's ways to send requests; iterations of 1 ms, and 1 us from an answer to the next request."""
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain import records
from simulator.domain.load import Load, Stage, Warmup
from simulator.errors import InputErrors
from simulator.workload.ramps import stepped_times_s
from support import presets
from support.presets import MS, arrivals_ms, section

PRESET = 'preset = "aiperf"\n'


@pytest.fixture
def run(tmp_path):
    return lambda text, *args, **keys: presets.run(tmp_path, PRESET + text, *args, **keys)


def test_a_rate_is_poisson_unless_said_otherwise(run):
    gaps = np.diff([0.0, *arrivals_ms(run("request_rate = 100.0\nnum_requests = 2000\n"))])

    assert np.mean(gaps) == pytest.approx(10.0, rel=0.1)
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(1.0, abs=0.1)


def test_a_constant_rate_begins_after_a_gap(run):
    assert arrivals_ms(run('request_rate = 100.0\narrival_pattern = "constant"\nnum_requests = 3\n')) == [10, 20, 30]


@pytest.mark.parametrize("smoothness", [0.25, 1.0, 16.0])
def test_gaps_of_gamma_have_the_smoothness_as_their_shape(run, smoothness):
    gaps = np.diff([0.0, *arrivals_ms(run(
        f'request_rate = 100.0\narrival_pattern = "gamma"\narrival_smoothness = {smoothness}\nnum_requests = 4000\n'))])

    assert np.mean(gaps) == pytest.approx(10.0, rel=0.15)
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(smoothness ** -0.5, rel=0.1)


def test_a_rising_rate_changes_ten_times_a_second(run):
    # 10/s after 1 s: it is 10 x 0.1 / 1 = 1/s up to 0.1 s, so the first gap lasts 1 s; there the ramp is over.
    slow = arrivals_ms(run('request_rate = 10.0\narrival_pattern = "constant"\nrequest_rate_ramp_duration_s = 1.0\n'
                           "num_requests = 3\n"))
    assert slow == [1000, 1100, 1200]
    # 100/s after 1 s: 10/s at first. At 0.1 the rate is 10 + 90 x 0.1 = 19; at 0.1 + 1/19 = 0.1526 still; at 0.2053 it
    # is 28.
    fast = arrivals_ms(run('request_rate = 100.0\narrival_pattern = "constant"\nrequest_rate_ramp_duration_s = 1.0\n'
                           "num_requests = 4\n"))
    assert fast == pytest.approx([100, 100 + 1e3 / 19, 100 + 2e3 / 19, 100 + 2e3 / 19 + 1e3 / 28], abs=1e-5)


@given(st.floats(0.5, 200.0), st.floats(0.0, 5.0), st.integers(1, 80), st.integers(0, 2**32))
def test_rising_rates_are_those_of_a_literal_twin(rate, ramp_s, count, seed):
    gaps = np.random.default_rng(seed).standard_exponential(count)

    def rate_at(time_s):
        if ramp_s == 0:
            return rate
        start, update = rate * 0.1 / ramp_s, 0
        while (update + 1) * 0.1 <= time_s + 1e-10:         # the last time at which it was changed
            update += 1
        reached_s = update * 0.1
        if update == 0:
            return start
        return rate if reached_s >= ramp_s else start + (rate - start) * reached_s / ramp_s

    times_s, time_s = [], 0.0
    for gap in gaps:
        time_s += gap / rate_at(time_s)
        times_s.append(time_s)

    found = stepped_times_s(lambda first, number: gaps[first:first + number].copy(), rate, ramp_s, count, math.inf)
    assert found == pytest.approx(times_s, rel=1e-9)


def test_a_duration_bounds_a_rate(run):
    arrivals = arrivals_ms(run("request_rate = 100.0\nduration_s = 3.0\n"))

    assert max(arrivals) < 3000
    assert 200 < len(arrivals) < 400
    shorter = arrivals_ms(run("request_rate = 100.0\nduration_s = 1.0\n"))
    assert shorter == arrivals[:len(shorter)]
    ramped = arrivals_ms(run("request_rate = 100.0\nduration_s = 3.0\nrequest_rate_ramp_duration_s = 2.0\n"))
    assert 100 < len(ramped) < 250                  # half of the rate over the ramp
    assert max(ramped) < 3000


def test_a_burst_goes_as_fast_as_slots_allow(run):
    assert arrivals_ms(run("concurrency = 2\nnum_requests = 5\n", 2)) == [0, 0, 2.001, 2.001, 4.002]


def test_slots_open_one_by_one_from_the_first_to_the_last(run):
    # 1 at 0, one more every 10 / 4 ms, the fifth at 10.
    assert arrivals_ms(run("concurrency = 5\nconcurrency_ramp_duration_s = 0.01\nnum_requests = 5\n", 99)) == [
        0, 2.5, 5, 7.5, 10]
    assert arrivals_ms(run("concurrency = 1\nconcurrency_ramp_duration_s = 0.01\nnum_requests = 2\n")) == [0, 1.001]


def test_users_send_so_often_or_as_fast_as_answers_come(run):
    # Two users, 100/s: each every 20 ms, the second from 10 on; with answers of 30 ms each goes on at once.
    result = run("user_centric_rate = 100.0\nnum_users = 2\nnum_requests = 4\n")
    by_id = result.requests[np.argsort(result.requests["request_id"])]
    assert (by_id["arrival_ns"] / MS).tolist() == [0, 10, 20, 30]
    late = run("user_centric_rate = 100.0\nnum_users = 2\nnum_requests = 4\n", 30)
    by_id = late.requests[np.argsort(late.requests["request_id"])]
    assert (by_id["arrival_ns"] / MS).tolist() == [0, 10, 30.001, 40.001]
    assert any("conversation of one turn" in line for line in late.summary["diagnosis"])


def test_users_go_on_until_the_end(run):
    # Ten a second for 0.55 s: at 0, 0.1, ..., 0.5.
    result = run("user_centric_rate = 10.0\nnum_users = 4\nduration_s = 0.55\n")

    assert sorted(arrivals_ms(result)) == [0, 100, 200, 300, 400, 500]


def test_answers_have_a_grace_after_the_end(run):
    # Slots of 40 ms until 0.1 s: requests at 0, 40.001 and 80.002; the last would end at 120.
    loop = "concurrency = 1\nduration_s = 0.1\n"
    patient, hasty = run(loop, 40), run(f"{loop}benchmark_grace_period_s = 0.01\n", 40)

    assert arrivals_ms(patient) == arrivals_ms(hasty) == [0, 40.001, 80.002]
    assert patient.summary["requests"]["completed"] == 3
    assert hasty.summary["requests"]["completed"] == 2
    assert hasty.requests["finish_reason"].tolist()[2] == records.FINISH_NAMES.index("cancelled")


def test_the_grace_counts_from_the_end_of_the_benchmark_not_of_the_warm_up(run):
    # One warm-up of 40 ms; then slots of 40 ms from 40.001 to 140.001: who comes last, at 120.003, has until 150.001.
    result = run("concurrency = 1\nduration_s = 0.1\nbenchmark_grace_period_s = 0.01\nwarmup_request_count = 1\n", 40)

    assert arrivals_ms(result) == [40.001, 80.002, 120.003, 0]
    assert result.requests["status"].tolist() == [
        records.COMPLETED, records.COMPLETED, records.TIMED_OUT, records.COMPLETED]


def test_a_warm_up_is_over_before_the_others_come(run):
    # Three in one slot, of 2 ms each; then two slots.
    result = run("concurrency = 2\nnum_requests = 3\nwarmup_request_count = 3\nwarmup_concurrency = 1\n", 2)

    assert arrivals_ms(result) == [6.003, 6.003, 8.004, 0, 2.001, 4.002]
    assert result.requests["request_id"].tolist() == [0, 1, 2, -1, -2, -3]
    assert result.requests["measured"].tolist() == [1, 1, 1, 0, 0, 0]


def test_a_warm_up_leaves_the_requests_as_they_are(tmp_path):
    text = (PRESET + 'request_rate = 50.0\nnum_requests = 20\nprompt_tokens = {distribution = "uniform", max = 90}\n'
            'output_tokens = {distribution = "uniform", max = 9}\n'
            "system_prompts = {num_tokens = 32, num_prompts = 3}\n")
    plain = presets.run(tmp_path, text, 0).requests
    warmed = presets.run(tmp_path, text + "warmup_duration_s = 0.5\n", 0).requests
    main = warmed[warmed["measured"] == 1]

    assert 10 < len(warmed) - len(main) < 45
    for column in ("request_id", "prompt_tokens", "output_tokens"):
        assert main[column].tolist() == plain[column].tolist()
    first = main["arrival_ns"][0] - plain["arrival_ns"][0]
    assert (main["arrival_ns"] - plain["arrival_ns"] == first).all()
    # Prompts of the warm-up are its own but for what all share.
    assert main["cached_tokens"].max() <= 32
    assert main["cached_tokens"].sum() > plain["cached_tokens"].sum()


def test_a_share_of_the_requests_is_given_up(run):
    text = "request_rate = 20.0\nnum_requests = 400\nrequest_cancellation_rate = 25.0\n"
    result = run(f"{text}request_cancellation_delay_s = 0.003\n", 9)
    status = result.requests["status"]

    assert 60 < (status == records.TIMED_OUT).sum() < 140
    assert set(status.tolist()) == {records.COMPLETED, records.TIMED_OUT}
    # After 3 ms each, with the iteration in progress.
    given_up = result.requests[status == records.TIMED_OUT]
    assert (given_up["output_tokens"] <= 4).all()
    assert (given_up["output_tokens"] >= 2).all()
    # An answer that is there in time is no loss.
    assert (run(f"{text}request_cancellation_delay_s = 0.1\n", 9).requests["status"] == records.COMPLETED).all()
    # At once: they came, and that is all.
    gone = run(text, 9).requests
    assert (gone["status"] == records.TIMED_OUT).tolist() == (status == records.TIMED_OUT).tolist()
    assert set(gone["output_tokens"][gone["status"] == records.TIMED_OUT].tolist()) == {0}


@pytest.mark.parametrize(("text", "expected"), [
    ("request_rate = 5.0\nnum_requests = 9\n", {}),
    ("request_rate = 5.0\nduration_s = 9.0\n", {"grace_s": 30.0}),
    ("request_rate = 5.0\nduration_s = 9.0\nbenchmark_grace_period_s = inf\n", {}),
    ("concurrency = 4\nduration_s = 9.0\nconcurrency_ramp_duration_s = 6.0\n",
     {"mode": "concurrency", "concurrency": 4, "ramp_up_s": 8.0, "grace_s": 30.0, "client_delay_s": 1e-6}),
    ("concurrency = 4\nnum_requests = 9\nload = {client_delay_s = 0.002}\n",
     {"mode": "concurrency", "concurrency": 4, "client_delay_s": 0.002}),
    ("user_centric_rate = 5.0\nnum_users = 3\nduration_s = 9.0\n",
     {"mode": "user_rate", "users": 3, "rate_per_s": 5.0, "client_delay_s": 1e-6}),
    ("user_centric_rate = 5.0\nnum_users = 3\nduration_s = 9.0\nbenchmark_grace_period_s = 4.0\n",
     {"mode": "user_rate", "users": 3, "rate_per_s": 5.0, "client_delay_s": 1e-6, "grace_s": 4.0})])
def test_options_fill_in_the_load(tmp_path, text, expected):
    assert section(tmp_path, PRESET + text).load == Load(**expected)


@pytest.mark.parametrize(("text", "expected"), [
    ("request_rate = 5.0\n", None),
    ("request_rate = 5.0\nwarmup_request_count = 7\n", {"rate_per_s": 5.0, "num_requests": 7}),
    ('request_rate = 5.0\narrival_pattern = "gamma"\narrival_smoothness = 4.0\nrequest_rate_ramp_duration_s = 2.0\n'
     "warmup_duration_s = 7.0\n", {"rate_per_s": 5.0, "duration_s": 7.0, "process": "gamma", "cv": 0.5,
                                   "ramp_up_s": 2.0}),
    ('request_rate = 5.0\nrequest_rate_ramp_duration_s = 2.0\nwarmup_duration_s = 7.0\nwarmup_request_count = 9\n'
     'warmup_request_rate = 3.0\nwarmup_arrival_pattern = "constant"\nwarmup_request_rate_ramp_duration_s = 0.0\n',
     {"rate_per_s": 3.0, "duration_s": 7.0, "num_requests": 9, "process": "constant"}),
    ("concurrency = 4\nconcurrency_ramp_duration_s = 6.0\nwarmup_request_count = 7\nwarmup_concurrency = 3\n",
     {"concurrency": 3, "num_requests": 7, "ramp_up_s": 9.0}),
    ("concurrency = 4\nwarmup_request_count = 7\nwarmup_concurrency_ramp_duration_s = 3.0\n",
     {"concurrency": 4, "num_requests": 7, "ramp_up_s": 4.0})])
def test_options_fill_in_the_warm_up(tmp_path, text, expected):
    found = section(tmp_path, PRESET + "num_requests = 9\n" + text).warmup

    assert found == Warmup(stage=None if expected is None else Stage(**expected))


@pytest.mark.parametrize(("text", "message"), [
    ("", "give one of request_rate, concurrency, user_centric_rate; found none"),
    ("request_rate = 1.0\nconcurrency = 2\n", "AIPerf lets a request that finds no slot wait until the next gap is"),
    ("request_rate = 1.0\nuser_centric_rate = 2.0\nnum_users = 2\n", "found request_rate and user_centric_rate"),
    ("concurrency = 4\nprefill_concurrency = 2\n", "prefill_concurrency: who lets requests come hears of the end of"),
    ("user_centric_rate = 2.0\n", "num_users: missing"),
    ("request_rate = 2.0\nnum_users = 2\n", "num_users: not read beside request_rate"),
    ('concurrency = 2\narrival_pattern = "gamma"\nwarmup_request_rate = 2.0\n',
     "arrival_pattern, warmup_request_rate: not read beside concurrency"),
    ("user_centric_rate = 2.0\nnum_users = 2\nwarmup_request_count = 2\n",
     "warmup_request_count: not read beside user_centric_rate"),
    ("request_rate = 2.0\narrival_smoothness = 2.0\n", 'arrival_smoothness takes arrival_pattern = "gamma"'),
    ("request_rate = 2.0\nwarmup_request_rate = 2.0\n", "no warm-up; give warmup_request_count or warmup_duration_s"),
    ("concurrency = 2\nwarmup_duration_s = 2.0\n", "warmup_request_count: missing"),
    ("concurrency = 2\nbenchmark_grace_period_s = 2.0\n", "benchmark_grace_period_s takes duration_s"),
    ("concurrency = 2\nrequest_cancellation_delay_s = 2.0\n", "takes request_cancellation_rate"),
    ("concurrency = 2\nrequest_cancellation_rate = 101.0\n", "request_cancellation_rate: expected a number from 0 to"),
    ("concurrency = 2\narrival = {rate_per_s = 1.0}\n", "has concurrency, which says when requests come"),
    ("concurrency = 2\nload = {grace_s = 4.0}\n", 'workload.load.grace_s: preset = "aiperf" has inf, found 4.0'),
    ("concurrency = 2\nwarmup_request_count = 2\nwarmup = {copies_of_first = 4}\n",
     'workload.warmup.copies_of_first: preset = "aiperf" has 0, found 4'),
    ("concurrency = 2\nwarmup_request_count = 2\nwarmup = {stage = {concurrency = 2, num_requests = 3}}\n",
     'workload.warmup.stage.num_requests: preset = "aiperf" has 2, found 3'),
    ("request_rat = 2.0\n", "request_rat: unknown key; did you mean request_rate")])
def test_bad_input(tmp_path, text, message):
    with pytest.raises(InputErrors, match=re.escape(message)):
        section(tmp_path, f"{PRESET}num_requests = 9\n{text}")
