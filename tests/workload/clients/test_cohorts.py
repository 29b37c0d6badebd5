"""Cohorts of an experiment file; iterations last 1 ms, numbers worked out by hand."""
import math

import numpy as np
import pytest

import simulator
from simulator.config.load import load_experiment
from simulator.domain.records import NOT_SENT
from simulator.errors import InputErrors
from simulator.workload.load import load

MS = 1_000_000
EXPERIMENT = """
engine = {num_gpu_blocks = 1000, max_model_len = 4096, async_scheduling = false}
latency = {backend = "linear", base_us = 1000, per_sequence_us = 0, per_prefill_token_us = 0, per_context_token_us = 0}
[workload]
type = "clients"
"""
LENGTHS = """
prompt_tokens = {distribution = "constant", tokens = 10}
output_tokens = {distribution = "constant", tokens = 1}
"""
DRAWN = """
prompt_tokens = {distribution = "uniform", max = 1000}
output_tokens = {distribution = "uniform", max = 100}
"""
CLOCK = 'id = "a"\ntenant = "A"\narrival = {process = "constant"}'
LOOP = 'id = "a"\nload = {mode = "concurrency", concurrency = 1}'


@pytest.fixture
def file(tmp_path):
    """Return a function that writes an experiment of clients, separated by ---, and cohorts, texts each."""
    def write(keys, clients, *cohorts, lengths=LENGTHS):
        listed = "".join(f"[[workload.clients]]\n{client}\n{lengths}" for client in clients.split("---"))
        listed += "".join(f"[[workload.cohorts]]\n{cohort}\n" for cohort in cohorts)
        (tmp_path / "e.toml").write_text(f"{EXPERIMENT}{keys}\n{listed}")
        return tmp_path / "e.toml"
    return write


def cohort(client="a", name="c", **keys):
    """Return the text of a cohort."""
    return "\n".join([f'name = "{name}"\nclient = "{client}"', *(f"{key} = {value}" for key, value in keys.items())])


def drawn(path, seed=1):
    return load(load_experiment(path).workload, seed)


def arrivals_s(path, tenant=None):
    built = drawn(path)
    is_of = slice(None) if tenant is None else built.demands["tenant"] == built.labels["tenant"].index(tenant)
    return (built.requests["arrival_ns"][is_of] / 1e9).tolist()


def sent_ms(path, **overrides):
    requests = simulator.run(path, overrides).requests
    return sorted((requests["arrival_ns"][requests["arrival_ns"] >= 0] / MS).tolist())


def test_members_share_the_rate_join_one_by_one_and_leave(file):
    # 4/s for two: each half a second after it joined, at 0 and 0.5 s; at 2 s they have left
    path = file("rate_per_s = 4.0", CLOCK, cohort(population=2, join_spread_s=1.0, leave_s=2.0))

    assert arrivals_s(path) == [0.5, 1.0, 1.0, 1.5, 1.5]


def test_a_cohort_sends_through_its_members_alone_and_counts_as_one_client(file):
    # 6/s in shares of 1 and 2: the cohort's two members 1/s each, b 4/s
    b = 'id = "b"\ntenant = "B"\nrate_share = 2.0\narrival = {process = "constant"}'
    path = file("rate_per_s = 6.0\nduration_s = 2.1", f"{CLOCK}---{b}", cohort(population=2))

    assert arrivals_s(path, "A") == [1.0, 1.0, 2.0, 2.0]
    assert arrivals_s(path, "B") == pytest.approx(np.arange(1, 9) / 4)


def test_two_cohorts_of_one_client_are_two(file):
    # 2/s each: one from 0 on, the other from 0.25 s on
    path = file("rate_per_s = 4.0\nduration_s = 1.5", CLOCK, cohort(population=1),
                cohort(name="late", population=1, join_s=0.25))

    assert arrivals_s(path) == [0.5, 0.75, 1.0, 1.25]


@pytest.mark.parametrize("window", ["square", "thin"])
def test_a_drain_lets_less_and_less_come(file, window):
    # 4/s. The first is due 0.25 s after 0.05 s, and so on: by the end of the segments, of 1, 0.9 .. 0.1 busy seconds,
    # 3, 7, 10, 13, 15, 17, 19, 20, 21 and 21 have come.
    path = file("rate_per_s = 4.0", CLOCK, cohort(
        population=1, join_s=0.05, window=f'"{window}"', drain="{duration_s = 10.0}"))

    times_s = np.array(arrivals_s(path))
    assert np.histogram(times_s, np.arange(11))[0].tolist() == [3, 4, 3, 3, 2, 2, 2, 1, 1, 0]
    is_early = times_s % 1 < 1 - np.floor(times_s) / 10
    assert is_early.all() == (window == "square")


def test_before_a_drain_and_in_a_spike_members_send_as_ever(file):
    # 2/s: until 10.5 s all; and from 20 to 21 s
    path = file("rate_per_s = 4.0", CLOCK, cohort(
        population=1, window='"square"', drain="{at_s = 10.25, duration_s = 0.5}", leave_s=10.3), cohort(
        name="s", population=1, window='"square"', spike="{at_s = 20.0, duration_s = 1.0}"))

    assert arrivals_s(path) == [*np.arange(0.5, 10.1, 0.5), 20.5, 21.0]


def test_a_day_has_busy_hours_again_and_again(file):
    # Hours of 10 s; of the one at 6 h 0.625, at 12 h 1, at 18 h 0.625, at 0 h 0.25, as BLIS has them.
    path = file("rate_per_s = 10.0\nduration_s = 480.0", CLOCK, cohort(
        population=1, window='"square"', diurnal=f"{{period_s = 240.0, peak_hour = {120 / 3600}}}"))

    counts = np.histogram(arrivals_s(path), np.arange(0, 481, 10))[0]
    assert counts[[0, 6, 12, 18]] == pytest.approx([25, 62.5, 100, 62.5], abs=1)
    assert counts[24:] == pytest.approx(counts[:24], abs=1)
    assert counts.sum() == pytest.approx(2 * 100 * 0.625 * 24, abs=1)


def test_members_draw_the_same_whoever_else_there_is(file):
    def of_tenant_a(*others):
        built = drawn(file("rate_per_s = 30.0\nduration_s = 3.0", 'id = "a"\ntenant = "A"---id = "b"', cohort(
            population=3, join_spread_s=1.0), *others, lengths=DRAWN))
        return built.requests["prompt_tokens"][built.demands["tenant"] == 0].tolist()

    assert of_tenant_a() == of_tenant_a(cohort("b", "d", population=2))


def test_a_member_draws_the_same_in_a_larger_cohort(file):
    def of_first_member(population):
        path = file(f"rate_per_s = {10.0 * population}\nduration_s = 1.0", 'id = "a"', cohort(
            population=population, join_spread_s=100.0), lengths=DRAWN)
        return drawn(path).requests["prompt_tokens"].tolist()

    assert len(of_first_member(1)) > 3
    assert of_first_member(1) == of_first_member(2)          # the second one joins when all is over


def test_members_have_their_own_draws(file):
    built = drawn(file("rate_per_s = 20.0", CLOCK, cohort(population=2, leave_s=5.0), lengths=DRAWN))

    assert np.all(np.diff(built.requests["arrival_ns"])[::2] == 0)      # two at a time
    assert np.mean(np.diff(built.requests["prompt_tokens"])[::2] == 0) < 0.1


def test_members_of_a_group_begin_alike(file):
    client = f'{CLOCK}\nprefix_group = "g"\nprefix_length = 64'
    built = drawn(file("rate_per_s = 4.0", client, cohort(population=2, leave_s=1.0)))

    shared = built.segments["stream"][::2]
    assert len(shared) == 2 and len(set(shared.tolist())) == 1


def test_fewer_requests_are_the_first_of_more(file):
    few, many = (drawn(file(f"rate_per_s = 5.0\nnum_requests = {n}", 'id = "a"', cohort(
        population=3, join_spread_s=50.0, window='"thin"', diurnal="{period_s = 60.0}"), lengths=DRAWN)).requests
        for n in (30, 400))

    assert (few == many[:30]).all()


def test_slots_of_members_open_when_they_join_and_close_when_they_leave(file):
    # They join at 2 and 4 ms and have left at 6 ms; each request takes 1 ms.
    path = file("", LOOP, cohort(population=2, join_s=0.002, join_spread_s=0.004, leave_s=0.006))

    assert sent_ms(path) == [2, 3, 4, 4, 5, 5]


def test_what_runs_when_a_member_leaves_goes_on(file):
    lengths = LENGTHS.replace("tokens = 1}", "tokens = 3}")
    result = simulator.run(file("", LOOP, cohort(population=2, join_s=0.002, join_spread_s=0.004, leave_s=0.006),
                                lengths=lengths))

    # one row after the other of each member
    assert (result.requests["arrival_ns"] / MS).tolist() == [2, 5, 4]
    assert (result.requests["completed_ns"] / MS).tolist() == [5, 8, 7]
    assert result.summary["requests"]["not_sent"] == 0


def test_slots_of_a_member_ramp_up_from_when_it_joins(file):
    # two slots each, the second 2 ms later
    loop = 'id = "a"\nload = {mode = "concurrency", concurrency = 2, ramp_up_s = 0.004}'

    assert sent_ms(file("", loop, cohort(population=1, join_s=0.003, leave_s=0.007))) == [3, 4, 5, 5, 6, 6]


def test_each_member_has_the_requests_of_its_client(file):
    path = file("", f"{LOOP}\nnum_requests = 2", cohort(population=3, join_spread_s=0.003))

    assert sent_ms(path) == [0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize(("tokens", "sent"), [(1, range(10)), (2, range(0, 10, 2)), (3, range(0, 10, 3))])
def test_slots_open_again_in_each_segment_of_a_square_wave(file, tokens, sent):
    # Ten segments of 1 ms, open in their first 1, 0.9 .. 0.1: who ends in between waits for the next.
    path = file("", LOOP, cohort(population=1, window='"square"', drain="{duration_s = 0.01}"),
                lengths=LENGTHS.replace("tokens = 1}", f"tokens = {tokens}}}"))

    assert sent_ms(path) == [*sent]


def test_slots_open_again_every_day(file):
    # A day of 24 hours of 1 ms, of which the one at 0 h is full and at 12 h the first quarter: requests of 1 ms begin
    # with each hour, whatever its part.
    path = file("duration_s = 0.048", LOOP, cohort(
        population=1, window='"square"', diurnal="{period_s = 0.024, peak_hour = 0.0}"))

    assert sent_ms(path) == [*range(48)]
    # Requests of 0.7 ms, to be seen later: the second one in an hour comes only if that is more than 0.7 full.
    result = simulator.run(path, {"latency.base_us": 700.0})
    hours = np.histogram(result.requests["arrival_ns"] / MS, np.arange(25))[0]
    parts = (1 + np.cos(2 * math.pi * np.arange(24) / 24)) / 2 * 0.75 + 0.25
    assert (hours[parts < 0.3] == 1).all() and hours[0] == 2


def test_who_waits_at_a_ceiling_when_its_member_leaves_is_not_sent(file):
    # 3 ms each, one at a time, due at 1, 2, 3 and 4 ms: the second is sent at 4, the others not before 4.5
    path = file("rate_per_s = 1000.0", f"{CLOCK}\nload = {{max_in_flight = 1}}", cohort(population=1, leave_s=0.0045),
                lengths=LENGTHS.replace("tokens = 1}", "tokens = 3}"))

    requests = simulator.run(path).requests
    assert (requests["arrival_ns"] / MS).tolist() == [1, 4, -1 / MS, -1 / MS]
    assert (requests["status"] == NOT_SENT).tolist() == [False, False, True, True]


def test_members_think_each_for_themselves(file):
    loop = 'id = "a"\nload = {mode = "concurrency", concurrency = 1, think_time_s = ' \
        '{distribution = "exponential", mean = 0.01}}'
    sent = sent_ms(file("", loop, cohort(population=2, leave_s=1.0)))

    assert sent[:2] == [0, 0] and len(set(sent)) > 0.9 * len(sent) > 20


@pytest.mark.parametrize("fast_forward", [True, False])
def test_closed_and_open_cohorts_stand_beside_clients_who_stay(file, fast_forward):
    b, c = 'id = "b"\narrival = {process = "constant"}', 'id = "c"\nload = {mode = "concurrency", concurrency = 1}'
    path = file("rate_per_s = 2000.0\nduration_s = 0.0035", f"{LOOP}---{b}---{c}",
                cohort(population=1, join_s=0.001, leave_s=0.003), cohort("b", "d", population=1, leave_s=0.0012))

    # a at 1 and 2 ms; b's member each 0.5 ms until 1.2 ms; c, always there, each ms
    assert sent_ms(path, **{"engine.fast_forward": fast_forward}) == [0, 0.5, 1, 1, 1, 2, 2, 3]


DIURNAL = "{period_s = 1.0}"


@pytest.mark.parametrize(("keys", "clients", "cohorts", "message"), [
    ("rate_per_s = 1.0", 'id = "chat"', [cohort("chta", population=1, leave_s=1.0)],
     'workload: cohorts[0].client: there is no client "chta"; did you mean chat?'),
    ("rate_per_s = 1.0", CLOCK, [cohort(population=0)], "workload.cohorts[0].population: expected an integer from 1"),
    ("rate_per_s = 1.0", CLOCK, [cohort(population=100_001)], "workload.cohorts[0].population: expected an integer"),
    ("rate_per_s = 1.0", CLOCK, ['client = "a"\npopulation = 1'], "workload.cohorts[0].name: missing"),
    ("rate_per_s = 1.0", CLOCK, [cohort(population=1, leave_s=1.0)] * 2, 'workload: cohorts: two have the name "c"'),
    ("rate_per_s = 1.0", CLOCK, [cohort(population=1)], "workload: give num_requests, duration_s, or both"),
    ("rate_per_s = 1.0", CLOCK, [cohort(population=4, join_s=1.0, join_spread_s=4.0, leave_s=4.0)],
     "workload.cohorts[0]: leave_s = 4: expected more than 4, when the last member joins"),
    ("rate_per_s = 1.0", CLOCK, [cohort(population=1, diurnal=DIURNAL)],
     'workload.cohorts[0]: diurnal takes window = "square" or "thin"'),
    ("rate_per_s = 1.0", CLOCK, [cohort(population=1, window='"thin"')],
     'workload.cohorts[0]: window = "thin" takes one of diurnal, spike, drain; found none'),
    ("rate_per_s = 1.0", CLOCK, [cohort(population=1, window='"square"', diurnal=DIURNAL, drain="{duration_s = 1}")],
     'window = "square" takes one of diurnal, spike, drain; found diurnal, drain'),
    ("rate_per_s = 1.0", CLOCK, [cohort(population=1, window='"thin"', spike="{duration_s = 1.0}")],
     'spike takes window = "square"'),
    ("rate_per_s = 1.0", CLOCK, [cohort(population=1, window='"sqare"')],
     'workload.cohorts[0].window: expected one of "none", "square", "thin", found "sqare"; did you mean square?'),
    ("rate_per_s = 1.0\nduration_s = 1.0", f"{CLOCK}\nrate_share = 0.0---id = \"b\"", [cohort(population=1)],
     'workload: cohorts[0].client: "a" sends nothing, its rate_share is 0'),
    ("", LOOP, [cohort(population=1)], 'workload: clients "a": give num_requests of each, or duration_s'),
    ("num_requests = 3", LOOP, [cohort(population=1, leave_s=1.0)],
     "workload: num_requests: no client comes at a rate; give each client its own"),
    ("duration_s = 1.0", LOOP, [cohort(population=1, window='"thin"', diurnal=DIURNAL)],
     'workload: cohorts[0].window: expected "none" or "square", found "thin": members of "a" have slots of their own'),
    ("", f"{LOOP}\nnum_requests = 9", [cohort(population=1, window='"square"', diurnal=DIURNAL)],
     "workload: cohorts[0].leave_s: missing; slots of members open again each period"),
    ("duration_s = 1e6", LOOP, [cohort(population=100, window='"square"', diurnal=DIURNAL)],
     "workload: cohorts: slots of members open up to 2.4e+09 times, at most 1e+07 are possible"),
])
def test_what_cohorts_cannot_be_is_refused(file, keys, clients, cohorts, message):
    with pytest.raises(InputErrors) as error:
        load_experiment(file(keys, clients, *cohorts))
    assert message in str(error.value)


def test_all_faults_of_cohorts_are_told_at_once(file):
    with pytest.raises(InputErrors) as error:
        load_experiment(file("rate_per_s = 1.0", CLOCK, *(cohort(each, population=1) for each in ("b", "c"))))

    assert [fault.partition("workload: ")[2][:18] for fault in error.value.faults] == [
        'cohorts: two have ', "cohorts[0].client:", "cohorts[1].client:"]


@pytest.mark.parametrize(("keys", "clients", "cohorts", "message"), [
    ("rate_per_s = 10.0\nnum_requests = 12", CLOCK, [cohort(population=1, leave_s=1.0)],
     "workload.num_requests: expected at most the 9 that come before all cohorts have left"),
    ('num_requests = 9\nload = {mode = "concurrency", concurrency = 2}', CLOCK, [cohort(population=1, leave_s=1.0)],
     "workload.cohorts[0]: members come at times of their own, but [workload.load] says when requests come"),
    ("rate_per_s = 10.0\nload = {max_in_flight = 2}", CLOCK, [cohort(population=1, leave_s=1.0)],
     "workload.cohorts[0].leave_s: a request may wait for [workload.load] max_in_flight until its member has left"),
    ("rate_per_s = 10.0\nduration_s = 2.0", CLOCK, [cohort(population=1, join_s=2.0)],
     "workload.duration_s: no request arrives before 2 s"),
    ("duration_s = 2.0", LOOP, [cohort(population=1, join_s=2.0)],
     "workload.duration_s: no request arrives before 2 s"),
    ("rate_per_s = 1e9", CLOCK, [cohort(population=1, leave_s=2.0)], "are more than 1000000000 requests"),
])
def test_what_cohorts_cannot_send_is_refused(file, keys, clients, cohorts, message):
    with pytest.raises(InputErrors) as error:
        drawn(file(keys, clients, *cohorts))
    assert message in str(error.value)


def test_a_duration_may_end_later_than_all_cohorts(file):
    path = file("rate_per_s = 10.0\nnum_requests = 12\nduration_s = 5.0", CLOCK, cohort(population=1, leave_s=1.0))

    assert len(arrivals_s(path)) == 9


def test_members_share_a_ceiling_as_long_as_they_stay(file):
    # due each ms, two at a time, 1 ms each
    path = file("rate_per_s = 2000.0\nnum_requests = 4\nload = {max_in_flight = 1}", CLOCK, cohort(population=2))

    assert sent_ms(path) == [1, 2, 3, 4]
