"""GuideLLM's profiles; iterations of 1 ms, and 1 us from an answer to the next request."""
import random
import re
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain.load import Load, Measure
from simulator.errors import InputErrors
from simulator.workload.presets.guidellm import constant_s
from support import presets
from support.presets import arrivals_ms, section

PRESET = 'preset = "guidellm"\n'


@pytest.fixture
def run(tmp_path):
    return lambda text, *args, **keys: presets.run(tmp_path, PRESET + text, *args, **keys)


@pytest.fixture
def refusal(tmp_path):
    def refusal(text):
        with pytest.raises(InputErrors) as refused:
            section(tmp_path, PRESET + text)
        return str(refused.value)
    return refusal


def test_synchronous_requests_come_one_after_the_other(run):
    # Each is in the iteration that begins when it comes, for nobody else runs.
    assert arrivals_ms(run('profile = "synchronous"\nnum_requests = 3\n', 2)) == [0, 2.001, 4.002]


def test_concurrent_requests_come_by_slots(run):
    # Two slots, outputs of 2: both end at 2, and the next two come 1 us later.
    assert arrivals_ms(run('profile = "concurrent"\nstreams = 2\nnum_requests = 5\n', 2)) == [
        0, 0, 2.001, 2.001, 4.002]


def test_e9_slots_open_over_the_ramp(run):
    # S + R i / n for i = 1, 2, 3, and S for i = 4: the same set of times.
    result = run('profile = "concurrent"\nstreams = 4\nrampup_s = 0.04\nnum_requests = 4\n', 100)

    assert sorted(arrivals_ms(result)) == [0, 10, 20, 30]


def test_throughput_sends_all_that_the_ceiling_lets_through(run):
    assert arrivals_ms(run('profile = "throughput"\nnum_requests = 3\n')) == [0, 0, 0]
    assert arrivals_ms(run('profile = "throughput"\nmax_concurrency = 2\nnum_requests = 3\n')) == [0, 0, 1.001]


def test_a_ramp_of_throughput_goes_by_the_number_of_the_request(run):
    # R min(1, i / 4) with R = 8 ms: 2, 4, 6, 8, 8. The first four hold all slots until 102, when the first ends.
    result = run('profile = "throughput"\nmax_concurrency = 4\nrampup_s = 0.008\nnum_requests = 5\n', 100)

    assert arrivals_ms(result) == [2, 4, 6, 8, 102.001]
    assert result.requests["client_queue_ns"].tolist() == [0, 0, 0, 0, 94_001_000]


def test_a_constant_rate_begins_after_a_gap(run):
    assert arrivals_ms(run('profile = "constant"\nrate_per_s = 100.0\nnum_requests = 3\n')) == [10, 20, 30]


def test_e8_a_constant_rate_after_a_ramp(run):
    arrivals = arrivals_ms(run('profile = "constant"\nrate_per_s = 10.0\nrampup_s = 4.0\nnum_requests = 25\n'))

    # The first at once, not at sqrt(2 R / rate) = 0.894 s, where the ramp as a rate over time would have it.
    assert [arrivals[i - 1] for i in (1, 5, 20, 25)] == [0.0, 2000.0, 4000.0, 4500.0]
    assert arrivals[1] == pytest.approx(1e3 * sqrt(2 * 2 * 4 / 10), abs=1e-6)


def test_a_ramp_may_end_between_two_requests():
    # m = 3 x 1 / 2 = 1.5: the second comes 0.5 / 3 s after the ramp.
    assert constant_s(np.arange(1, 4), 3.0, 1.0) == pytest.approx([0, 1 + 0.5 / 3, 1 + 1.5 / 3])


@given(st.floats(0.1, 1e3), st.floats(0.0, 1e2), st.integers(1, 300))
def test_times_are_those_of_the_formula_and_never_fall(rate, rampup_s, count):
    def literal(i):
        if rampup_s == 0:
            return i / rate
        if i == 1:
            return 0.0
        m = rate * rampup_s / 2
        return sqrt(2 * i * rampup_s / rate) if i <= m else rampup_s + (i - m) / rate

    times_s = constant_s(np.arange(1, count + 1), rate, rampup_s)

    assert times_s == pytest.approx([literal(i) for i in range(1, count + 1)], rel=1e-12, abs=1e-12)
    assert (np.diff(times_s) >= 0).all()


def test_poisson_gaps_are_those_of_pythons_generator(run):
    generator = random.Random(42)
    expected = np.cumsum([generator.expovariate(50.0) for _ in range(5)]) * 1e3

    assert arrivals_ms(run('profile = "poisson"\nrate_per_s = 50.0\nnum_requests = 5\n')) == pytest.approx(
        expected, abs=1e-6)
    other = arrivals_ms(run('profile = "poisson"\nrate_per_s = 50.0\nnum_requests = 5\nrandom_seed = 1\n'))
    assert other != pytest.approx(expected)
    # The seed of the experiment changes lengths, not times.
    assert arrivals_ms(run('profile = "poisson"\nrate_per_s = 50.0\nnum_requests = 5\n', seed=7)) == pytest.approx(
        expected, abs=1e-6)


@pytest.mark.parametrize("profile", ["constant", "poisson"])
def test_a_ceiling_makes_requests_of_a_rate_wait(run, profile):
    result = run(f'profile = "{profile}"\nrate_per_s = 1000.0\nmax_concurrency = 1\nnum_requests = 4\n', 3)

    arrivals = arrivals_ms(result)
    assert np.diff(arrivals)[1:] == pytest.approx([3.001, 3.001])
    assert result.requests["client_queue_ns"].max() > 0


def test_what_runs_at_the_end_is_given_up(run):
    # Requests every 4 ms from 4 on, of 3 ms; nobody comes at 16, and the one of 12 has ended before.
    ended = run('profile = "constant"\nrate_per_s = 250.0\nduration_s = 0.016\n', 3)
    # With 10 ms each the last two would need until 18 and 22: at 16 their clients leave.
    cut = run('profile = "constant"\nrate_per_s = 250.0\nduration_s = 0.016\n', 10)

    assert ended.summary["requests"]["completed"] == 3
    assert arrivals_ms(cut) == [4, 8, 12]
    assert cut.summary["requests"]["timed_out"] == 2
    assert set(cut.requests["finish_reason"].tolist()) == {1, 8}        # stop, cancelled


def test_a_loop_that_only_a_duration_bounds(run):
    result = run('profile = "throughput"\nmax_concurrency = 2\nduration_s = 0.1\n', 3)

    assert result.requests["arrival_ns"].max() < 100 * presets.MS
    assert result.summary["requests"]["completed"] == 2 * 33        # each 3.001 ms, and what runs at 100 is given up


def test_warm_up_and_cool_down_are_sent_and_not_measured(run):
    # Ten requests one after the other: the first two, and the last one, do not count.
    result = run('profile = "synchronous"\nnum_requests = 10\nwarmup_phase = 0.25\ncooldown_phase = 1\n')

    assert result.requests["measured"].tolist() == [0, 0, *[1] * 7, 0]
    assert result.summary["requests"]["completed"] == 7
    whole = run('profile = "synchronous"\nnum_requests = 10\n')
    assert arrivals_ms(result) == arrivals_ms(whole)


@pytest.mark.parametrize(("text", "expected"), [
    ("num_requests = 50\nwarmup_phase = 0.1", {"warmup_requests": 5}),
    ("num_requests = 50\nwarmup_phase = 7", {"warmup_requests": 7}),
    ("num_requests = 50\nwarmup_phase = 0.99", {"warmup_requests": 49}),
    ("duration_s = 30.0\nwarmup_phase = 0.1", {"warmup_s": 3.0}),
    ("duration_s = 30.0\ncooldown_phase = 2.5", {"cooldown_s": 2.5}),
    ("duration_s = 30.0\nnum_requests = 50\nwarmup_phase = 0.1\ncooldown_phase = 4",
     {"warmup_s": 3.0, "cooldown_s": 4.0}),
    ("duration_s = 30.0\nnum_requests = 50\nwarmup_phase = 0.1\nwarmup_phase_mode = \"prefer_requests\"",
     {"warmup_requests": 5}),
    ("duration_s = 30.0\nwarmup_phase = 0.1\nwarmup_phase_mode = \"prefer_requests\"", {"warmup_s": 3.0}),
    ("duration_s = 30.0\nnum_requests = 50\nwarmup_phase = 0.1\nwarmup_phase_mode = \"both\"",
     {"warmup_s": 3.0, "warmup_requests": 5}),
    ("num_requests = 50\ncooldown_phase = 0.1\ncooldown_phase_mode = \"requests\"", {"cooldown_requests": 5})])
def test_phases_are_shares_below_1_and_else_seconds_or_requests(tmp_path, text, expected):
    found = section(tmp_path, f'{PRESET}profile = "synchronous"\n{text}\n').measure

    assert found == Measure(**expected)


def test_a_phase_that_there_is_not_leaves_the_file_its_say(tmp_path):
    text = (f'{PRESET}profile = "synchronous"\nnum_requests = 50\nwarmup_phase = 0.1\n'
            "measure = {cooldown_requests = 3, warmup_requests = 5}\n")

    assert section(tmp_path, text).measure == Measure(warmup_requests=5, cooldown_requests=3)


@pytest.mark.parametrize(("text", "expected"), [
    ('profile = "synchronous"\nnum_requests = 9\n', {"mode": "concurrency", "concurrency": 1, "client_delay_s": 1e-6}),
    ('profile = "synchronous"\nnum_requests = 9\nload = {client_delay_s = 0.0}\n',
     {"mode": "concurrency", "concurrency": 1, "client_delay_s": 0.0}),
    ('profile = "concurrent"\nstreams = 3\nduration_s = 9.0\nrampup_s = 2.0\n',
     {"mode": "concurrency", "concurrency": 3, "client_delay_s": 1e-6, "ramp_up_s": 2.0, "grace_s": 0.0}),
    ('profile = "constant"\nrate_per_s = 1.0\nnum_requests = 9\n', {}),
    ('profile = "poisson"\nrate_per_s = 1.0\nnum_requests = 9\nmax_concurrency = 2\n',
     {"max_in_flight": 2, "client_delay_s": 1e-6})])
def test_a_profile_fills_in_the_load(tmp_path, text, expected):
    assert section(tmp_path, PRESET + text).load == Load(**expected)


def test_what_the_file_says_beside_a_profile_stays_or_is_refused(refusal):
    loop = 'profile = "concurrent"\nstreams = 2\nnum_requests = 9\n'
    has = 'preset = "guidellm" has'

    assert f"workload.load.concurrency: {has} 2, found 3; leave it out" in refusal(
        loop + 'load = {mode = "concurrency", concurrency = 3}\n')
    assert f"workload.load.ramp_up_s: {has} 1.0, found 0.0" in refusal(
        loop + 'rampup_s = 1.0\nload = {mode = "concurrency", concurrency = 2, ramp_up_s = 0.0}\n')
    assert f'workload.load.mode: {has} "concurrency", found "timestamps"' in refusal(
        loop + 'load = {mode = "timestamps"}\n')
    assert f"workload.load.max_in_flight: {has} 0, found 5" in refusal(
        'profile = "constant"\nrate_per_s = 1.0\nnum_requests = 9\nload = {max_in_flight = 5}\n')
    assert f"workload.load.grace_s: {has} 0.0, found 9.0" in refusal(
        loop + "duration_s = 9.0\nload = {grace_s = 9.0}\n")
    assert f"workload.measure.warmup_requests: {has} 3, found 4" in refusal(
        loop + "warmup_phase = 3\nmeasure = {warmup_requests = 4}\n")
    assert f"workload.measure.warmup_s: {has} 0.0, found 2.0" in refusal(
        loop + "warmup_phase = 3\nmeasure = {warmup_s = 2.0}\n")
    for key in ("arrival = {rate_per_s = 1.0}", "time_scale = 2.0",
                'rate = {kind = "piecewise", times_s = [0.0], rates_per_s = [1.0]}'):
        assert ('arrival, rate and time_scale: preset = "guidellm" has profile = "concurrent", which says when '
                "requests come") in refusal(f"{loop}{key}\n")


def test_all_that_contradicts_a_profile_is_told_at_once(refusal):
    text = refusal('profile = "synchronous"\nnum_requests = 9\nwarmup_phase = 2\nmeasure = {warmup_requests = 1}\n'
                   'load = {mode = "lanes", lanes = 3}\n')

    assert [line.split(": ")[1] for line in text.splitlines()] == [
        "workload.load.mode", "workload.load.lanes", "workload.measure.warmup_requests"]


@pytest.mark.parametrize(("text", "message"), [
    ('profile = "sweep"\n', r"synchronous, one with throughput.*constant at each of numpy.linspace\(s, t, sweep_size - "
     r"1\)\[1:\].*python -m simulator FILE --set workload.profile=constant --set workload.rate_per_s=R"),
    ('profile = "replay"\n', 'is a trace: type = "trace" with format and path, and time_scale'),
    ('profile = "concurent"\n', "did you mean concurrent"),
    ("", "workload.profile: missing"),
    ('profile = "constant"\nnum_requests = 9\n', 'profile = "constant" needs rate_per_s'),
    ('profile = "concurrent"\nnum_requests = 9\n', 'profile = "concurrent" needs streams'),
    ('profile = "constant"\nrate_per_s = 1.0\nstreams = 2\nrandom_seed = 1\n',
     'profile = "constant" does not read streams, random_seed'),
    ('profile = "poisson"\nrate_per_s = 1.0\nrampup_s = 2.0\n', 'profile = "poisson" does not read rampup_s'),
    ('profile = "synchronous"\nmax_concurrency = 2\n', "does not read max_concurrency"),
    ('profile = "throughput"\nrampup_s = 2.0\n', "throughput rises to max_concurrency; give it"),
    ('profile = "throughput"\nduration_s = 2.0\n', "num_requests: missing.*where max_concurrency is absent"),
    ('profile = "throughput"\nmax_concurrency = 2\nrampup_s = 1.0\nduration_s = 2.0\n', "num_requests: missing"),
    ('profile = "concurrent"\nstreams = 4\nrampup_s = 1.0\nnum_requests = 3\n', "4 open one by one, and num_requests "
     "are 3"),
    ('profile = "synchronous"\nnum_requests = 3\nwarmup_phase_mode = "both"\n', "warmup_phase_mode takes warmup_phase"),
    ('profile = "synchronous"\nnum_requests = 3\nwarmup_phase = 0.1\nwarmup_phase_mode = "duration"\n',
     'warmup_phase: warmup_phase_mode = "duration" takes duration_s'),
    ('profile = "synchronous"\nduration_s = 3.0\ncooldown_phase = 0.1\ncooldown_phase_mode = "requests"\n',
     'cooldown_phase: cooldown_phase_mode = "requests" takes num_requests'),
    ('profile = "constant"\nrate_per_s = [1.0, 2.0]\n', r"rate_per_s: expected a number.*found \[1.0, 2.0\]")])
def test_bad_input(refusal, text, message):
    import re

    assert re.search(message, refusal(text))


@pytest.mark.parametrize(("text", "message"), [
    ('profile = "constant"\nrate_per_s = 1e9\nduration_s = 1e3\n', "1000000000000 requests of at least"),
    ('profile = "poisson"\nrate_per_s = 1.0\n', "give num_requests, duration_s, or both"),
    ('profile = "synchronous"\n', "give num_requests, duration_s, or both"),
    ('profile = "synchronous"\nnum_requests = 4\nwarmup_phase = 0.9\ncooldown_phase = 1\n', "leave none of 4 requests"),
    ('profile = "constant"\nrate_per_s = 1.0\nduration_s = 0.5\n', "no request arrives before 0.5 s"),
    ('profile = "constant"\nrate_per_s = 1.0\nnum_requests = 2\nload = {client_delay_s = 0.5}\n',
     "client_delay_s: nothing in this workload waits"),
    ('profile = "constant"\nrate_per_s = 1.0\nduration_s = 3.0\nload = {client_delay_s = 0.5}\n',
     "client_delay_s: nothing in this workload waits")])
def test_loads_that_cannot_be_served(run, text, message):
    with pytest.raises(InputErrors, match=message):
        run(text)


def test_e8_the_rates_of_a_sweep_are_those_that_its_refusal_names(refusal):
    # Five runs, of which synchronous makes 2/s and throughput 10/s.
    formula = re.search(r"at each of numpy\.(.*), s and t being", refusal('profile = "sweep"\n'))[1]

    assert eval(formula, {"linspace": np.linspace, "s": 2.0, "t": 10.0, "sweep_size": 5}) == pytest.approx(
        [4.6667, 7.3333, 10.0], abs=1e-4)
