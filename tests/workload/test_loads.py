"""[workload.load] in experiments: every iteration lasts 1 ms, numbers worked out by hand."""
import numpy as np
import pytest

import simulator
from simulator.domain import records
from simulator.errors import InputErrors

MS = 1_000_000
EXPERIMENT = """
engine = {num_gpu_blocks = 1000, max_model_len = 4000, async_scheduling = false}
[latency]
backend = "linear"
base_us = 1000.0
per_sequence_us = 0.0
per_prefill_token_us = 0.0
per_context_token_us = 0.0
"""
OUTPUTS = [3, 1, 2, 1, 1]


@pytest.fixture
def run(tmp_path):
    """Run requests with these outputs, or a workload of its own; `load`: TOML of [workload.load] and what follows."""
    def run(load, outputs=None, arrivals_s=None, workload="", **overrides):
        if outputs is not None:
            arrivals_s = arrivals_s or [0.0] * len(outputs)
            rows = "".join(f"{time},1,{output}\n" for time, output in zip(arrivals_s, outputs, strict=True))
            (tmp_path / "trace.csv").write_text(f"arrived_at,num_prefill_tokens,num_decode_tokens\n{rows}")
            workload = 'type = "trace"\npath = "trace.csv"\n' + workload
        (tmp_path / "experiment.toml").write_text(f"{EXPERIMENT}[workload]\n{workload}\n[workload.load]\n{load}\n")
        return simulator.run(tmp_path / "experiment.toml", overrides)
    return run


def ms(result, field):
    return [time / MS for time in result.requests[field].tolist()]


def expect(result, arrivals, completions):
    assert ms(result, "arrival_ns") == arrivals
    assert ms(result, "completed_ns") == completions


LOOP = 'mode = "concurrency"\nconcurrency = 2\n'


def test_e1_a_closed_loop(run):
    expect(run(LOOP, OUTPUTS), [0, 0, 1, 3, 3], [3, 1, 3, 4, 4])


def test_e2_clients_with_a_delay_miss_an_iteration(run):
    expect(run(LOOP + "client_delay_s = 0.0001", OUTPUTS), [0, 0, 1.1, 3.1, 4.1], [3, 1, 4, 5, 6])


def test_e3_slots_rest_while_users_think(run):
    expect(run(LOOP + "think_time_s = 0.005", OUTPUTS), [0, 0, 6, 8, 13], [3, 1, 8, 9, 14])


@pytest.mark.parametrize("origin", ["arrival", "arrival_mean"])        # the same where each draw is the mean
def test_e3_with_times_that_count_from_arrivals(run, origin):
    load = LOOP + f'think_time_s = 0.005\nthink_time_from = "{origin}"'

    expect(run(load, OUTPUTS), [0, 0, 5, 5, 10], [3, 1, 7, 6, 11])


def test_without_a_mean_nothing_goes_by_it(run, tmp_path):
    (tmp_path / "lab.py").write_text("class Fixed:\n    def __init__(self, parameters):\n        pass\n\n"
                                     "    def draw(self, generator, count):\n        return generator.random(count)\n")
    load = LOOP + 'think_time_s = {distribution = "lab:Fixed"}\nthink_time_from = "arrival_mean"'
    with pytest.raises(InputErrors, match='needs mean_s of the distribution, which "lab:Fixed" does not have'):
        run(load, OUTPUTS)


def test_e4_requests_that_warm_up_are_not_measured(run):
    result = run(LOOP + "[workload.measure]\nwarmup_requests = 2", OUTPUTS)

    assert result.requests["measured"].tolist() == [0, 0, 1, 1, 1]
    assert result.summary["requests"]["completed"] == 3
    assert (result.summary["e2el_ms"]["mean"], result.summary["e2el_ms"]["max"]) == (pytest.approx(4 / 3), 2.0)
    assert result.summary["duration_s"] == 0.003                # from 1 to 4 ms
    assert any("2 of 5 requests are not measured" in line for line in result.summary["diagnosis"])


def test_e5_a_ceiling_makes_clients_wait(run):
    result = run("max_in_flight = 1", [2, 1, 1], [0, 0.0005, 0.0006])

    expect(result, [0, 2, 3], [2, 3, 4])
    assert ms(result, "scheduled_arrival_ns") == [0, 0.5, 0.6]
    assert ms(result, "client_queue_ns") == [0, 1.5, 2.4]


def test_e9_slots_open_over_the_ramp(run):
    result = run('mode = "concurrency"\nconcurrency = 4\nramp_up_s = 0.04', [100] * 4)

    assert ms(result, "arrival_ns") == [0, 10, 20, 30]


def test_more_slots_than_requests_send_all_at_once(run):
    assert ms(run('mode = "concurrency"\nconcurrency = 9', OUTPUTS), "arrival_ns") == [0] * 5


def test_the_end_of_a_load_and_its_grace(run):
    # Nobody comes at 3 or later; what runs is given up at 5.
    result = run(LOOP + "grace_s = 0.002", [3, 9, 1, 1], workload="duration_s = 0.003")

    assert ms(result, "arrival_ns")[:2] == [0, 0]
    assert result.summary["requests"] == {
        "injected": 2, "completed": 1, "rejected": 0, "dropped": 0, "timed_out": 1, "failed": 0, "waiting": 0,
        "running": 0, "length_capped": 0, "not_sent": 2}
    assert result.requests["finish_reason"].tolist()[1] == 8    # cancelled


def test_the_grace_counts_from_the_beginning_of_those_behind_the_warm_up(run):
    # Warm-ups run from 0 to 3; the others come until 6, and what runs at 8 is given up.
    result = run(LOOP + "grace_s = 0.002\n[workload.warmup]\ncopies_of_first = 2", [3, 9, 1, 1],
                 workload="duration_s = 0.003")

    assert ms(result, "arrival_ns")[:2] == [3, 3]
    assert ms(result, "completed_ns")[0] == 6
    assert result.requests["finish_reason"].tolist()[1:4] == [8, 0, 0]


def test_each_stage_with_an_end_has_its_grace(run):
    stages = """mode = "stages"
grace_s = 0.0005
stages = [{concurrency = 1, num_requests = 2, duration_s = 0.003}, {concurrency = 1, num_requests = 1},
          {concurrency = 1, num_requests = 1, duration_s = 0.002}]"""
    result = run(stages, [2, 9, 9, 2])

    assert ms(result, "arrival_ns") == [0, 2, 4, 13]
    assert result.requests["finish_reason"].tolist() == [1, 8, 1, 1]


def test_a_stage_whose_last_request_comes_at_its_end_has_a_grace_too(run):
    # One at 2 ms, the end, of 9 ms: given up at 4.
    stages = 'stages = [{rate_per_s = 500.0, process = "even_random", duration_s = 0.002}]'
    result = run(f'mode = "stages"\ngrace_s = 0.002\n{stages}', [9])

    assert ms(result, "arrival_ns") == [2]
    assert result.requests["finish_reason"].tolist() == [8]
    patient = run(f'mode = "stages"\ngrace_s = 1e300\n{stages}', [9])
    assert patient.requests["finish_reason"].tolist() == [1]


def test_stages_have_ends_of_their_own(run):
    with pytest.raises(InputErrors, match=r"workload.duration_s: each of .* give duration_s there"):
        run('mode = "stages"\nstages = [{concurrency = 1, num_requests = 1}]', OUTPUTS, workload="duration_s = 1.0")
    with pytest.raises(InputErrors, match="grace_s: counts from duration_s, which neither the workload nor a stage"):
        run('mode = "stages"\ngrace_s = 1.0\nstages = [{concurrency = 1, num_requests = 1}]', OUTPUTS)


DRAWN = """type = "synthetic"
prompt_tokens = {distribution = "constant", tokens = 10}
output_tokens = {distribution = "uniform", min = 1, max = 9}
"""


def test_a_loop_that_only_a_duration_bounds_sends_as_many_as_it_can(run):
    ended = run(LOOP, workload=DRAWN + "duration_s = 0.5")
    longer = run(LOOP, workload=DRAWN + "duration_s = 2.0")

    assert ended.summary["requests"]["not_sent"] == 0
    assert ms(ended, "arrival_ns") == ms(longer, "arrival_ns")[:len(ended.requests)]
    assert (ended.requests["arrival_ns"] < 500 * MS).all()
    assert longer.requests["arrival_ns"].max() > 1900 * MS      # the first guess was 128 requests
    assert len(longer.requests) > 700


def test_a_loop_without_an_end_is_refused(run):
    with pytest.raises(InputErrors, match="give num_requests, duration_s, or both"):
        run(LOOP, workload=DRAWN)


def test_warm_ups_come_before_all_others_and_leave_the_cache_warm(run):
    workload = 'type = "synthetic"\nnum_requests = 3\nprompt_tokens = {distribution = "constant", tokens = 64}\n' \
        'output_tokens = {distribution = "constant", tokens = 2}\n'
    result = run('mode = "concurrency"\nconcurrency = 1\n[workload.warmup]\ncopies_of_first = 2', workload=workload)

    assert ms(result, "arrival_ns") == [4, 6, 8, 0, 2]
    assert result.requests["request_id"].tolist() == [0, 1, 2, -1, -2]
    assert result.requests["measured"].tolist() == [1, 1, 1, 0, 0]
    assert result.requests["cached_tokens"].tolist() == [48, 0, 0, 0, 48]   # all but the last block of 64 tokens
    assert result.summary["requests"]["completed"] == 3
    assert result.summary["duration_s"] == 0.006


@pytest.mark.parametrize(("load", "arrivals"), [
    ('mode = "lanes"\nlanes = 2', [0, 0, 2, 2]), ('mode = "user_rate"\nusers = 3\nrate_per_s = 10.0', [0, 0, 0, 2])])
def test_warm_ups_are_as_many_at_once_as_the_others(run, load, arrivals):
    result = run(f"{load}\n[workload.warmup]\ncopies_of_first = 4", [2, 1, 1])

    assert ms(result, "arrival_ns")[3:] == arrivals


@pytest.mark.parametrize("load", [LOOP, 'mode = "lanes"\nlanes = 2\n', "max_in_flight = 2\n", ""])
def test_a_cap_on_idle_plays_takes_plays(run, load):
    with pytest.raises(InputErrors, match="tree_idle_cap_s: no play of this workload has several requests"):
        run(load + "tree_idle_cap_s = 1.0", OUTPUTS)


def test_stages_follow_each_other(run):
    # Two slots: 0-3, 0-1, 1-3; 2 ms later two requests 1 ms apart, as a constant rate has them; then one slot.
    stages = """mode = "stages"
[[workload.load.stages]]
concurrency = 2
num_requests = 3
[[workload.load.stages]]
rate_per_s = 1000.0
process = "constant"
num_requests = 2
interval_s = 0.002
[[workload.load.stages]]
concurrency = 1
num_requests = 2"""

    expect(run(stages, [3, 1, 2, 5, 1, 1, 1]), [0, 0, 1, 6, 7, 7, 8], [3, 1, 3, 11, 8, 8, 9])


def test_stages_that_need_more_than_there_is_are_refused(run):
    with pytest.raises(InputErrors, match="they need 9 requests or sessions, the workload has 5"):
        run('mode = "stages"\nstages = [{concurrency = 1, num_requests = 9}]', OUTPUTS)


def test_even_random_arrivals_end_with_their_stage(run):
    stages = 'mode = "stages"\nstages = [{rate_per_s = 10.0, process = "even_random", duration_s = 2.0}]'
    arrivals = ms(run(stages, workload=DRAWN), "arrival_ns")

    assert len(arrivals) == 20
    assert arrivals[-1] == 2000                     # at the end of the stage, and sent
    assert (np.diff(arrivals) > 0).all()


ONE_MORE = "[[workload.load.stages]]\nconcurrency = 1\nnum_requests = 1"


def test_a_stage_may_wait_for_all_of_the_one_before(run):
    # Requests at 1 and 2 ms of 5 ms each: the next stage begins at 2, or when both have ended.
    stages = 'mode = "stages"\n[[workload.load.stages]]\nrate_per_s = 1000.0\nprocess = "constant"\nnum_requests = 2\n'

    assert ms(run(stages + ONE_MORE, [5, 5, 1]), "arrival_ns") == [1, 2, 2]
    assert ms(run(f"{stages}drain = true\n{ONE_MORE}", [5, 5, 1]), "arrival_ns") == [1, 2, 7]


def test_a_ceiling_of_a_stage_makes_its_requests_wait(run):
    # One at once: the second is due at 2, the end of the stage, and comes when the first has ended.
    stages = ('mode = "stages"\n[[workload.load.stages]]\nrate_per_s = 1000.0\nprocess = "even_random"\nduration_s = '
              f"0.002\nmax_in_flight = 1\n{ONE_MORE}")
    result = run(stages, [5, 5, 1])

    first = ms(result, "arrival_ns")[0]
    assert 0 < first < 2
    assert ms(result, "arrival_ns")[1:] == [first + 5, first + 5]


def test_slots_of_a_stage_open_over_its_ramp(run):
    stages = 'mode = "stages"\n[[workload.load.stages]]\nconcurrency = 4\nnum_requests = 4\nramp_up_s = 0.04\n'

    assert ms(run(stages + ONE_MORE, [100, 100, 100, 100, 1]), "arrival_ns") == [0, 10, 20, 30, 130]


def test_a_rate_of_a_stage_rises_by_steps(run):
    # 100/s after 1 s, from 10/s on; at 0.1 s it is 10 + 90 x 0.1 = 19.
    stages = ('mode = "stages"\nstages = [{rate_per_s = 100.0, process = "constant", num_requests = 2, '
              "ramp_up_s = 1.0}]")

    assert ms(run(stages, [1, 1]), "arrival_ns") == pytest.approx([100, 100 + 1e3 / 19], abs=1e-5)


@pytest.mark.parametrize(("stage", "message"), [
    ("concurrency = 2, num_requests = 3, drain = true", "process, cv, max_in_flight and drain are of a stage"),
    ("concurrency = 2, num_requests = 3, max_in_flight = 2", "process, cv, max_in_flight and drain are of a stage"),
    ('rate_per_s = 2.0, process = "even_random", num_requests = 3, ramp_up_s = 1.0', "has no ramp_up_s"),
    ("rate_per_s = 1e9, duration_s = 1e3", "stages\\[0\\]: 1e\\+12 requests at 1e\\+09/s are too many")])
def test_stages_that_cannot_be_are_refused(run, stage, message):
    with pytest.raises(InputErrors, match=message):
        run(f'mode = "stages"\nstages = [{{{stage}}}]', OUTPUTS)


def test_a_stage_of_its_own_may_warm_up(run):
    # Two of 2 ms in one slot, drawn; then the three requests of the workload, as they would be without.
    drawn = ('type = "synthetic"\nnum_requests = 3\nprompt_tokens = {distribution = "uniform", max = 90}\n'
             'output_tokens = {distribution = "constant", tokens = 2}\n')
    warmup = "[workload.warmup]\nstage = {concurrency = 1, num_requests = 2}"
    plain, warmed = run(LOOP, workload=drawn), run(LOOP + warmup, workload=drawn)

    assert ms(warmed, "arrival_ns") == [4, 4, 6, 0, 2]
    assert warmed.requests["request_id"].tolist() == [0, 1, 2, -1, -2]
    assert warmed.requests["prompt_tokens"].tolist()[:3] == plain.requests["prompt_tokens"].tolist()
    assert warmed.requests["measured"].tolist() == [1, 1, 1, 0, 0]
    assert warmed.summary["duration_s"] == plain.summary["duration_s"] == 0.004


def test_warm_ups_come_before_requests_at_times_of_their_own(run):
    # Warm-ups at 1, 2, 3 ms, of 2 ms: all is over at 5, and there the clock of the others begins.
    drawn = ('type = "synthetic"\nnum_requests = 2\narrival = {process = "constant", rate_per_s = 100.0}\n'
             'prompt_tokens = {distribution = "constant", tokens = 9}\n'
             'output_tokens = {distribution = "constant", tokens = 2}\n')
    result = run('[workload.warmup]\nstage = {rate_per_s = 1000.0, process = "constant", num_requests = 3}',
                 workload=drawn)

    assert ms(result, "arrival_ns") == [15, 25, 1, 2, 3]


def test_requests_that_warm_up_have_adapters_and_lengths_that_are_foretold(run):
    drawn = ('type = "synthetic"\nnum_requests = 3\nprompt_tokens = {distribution = "constant", tokens = 9}\n'
             'output_tokens = {distribution = "constant", tokens = 2}\nadapters = {names = ["a", "b"], assign = '
             '"round_robin"}\noutput_knowledge = {predictor = "exact"}\n')
    cluster = {"cluster.routing.policy": "least_loaded", "cluster.routing.metric": "expected_tokens"}
    result = run(LOOP + "[workload.warmup]\nstage = {concurrency = 1, num_requests = 2}", workload=drawn, **cluster)

    assert result.requests["adapter"].tolist() == [0, 1, 0, 0, 1]
    assert result.requests["expected_tokens"].tolist() == [2] * 5


@pytest.mark.parametrize(("warmup", "message"), [
    ("copies_of_first = 1\nstage = {concurrency = 1, num_requests = 2}", "give one of copies_of_first"),
    ("stage = {concurrency = 1, duration_s = 2.0}", "stage.num_requests: missing"),
    ("stage = {rate_per_s = 1.0, num_requests = 2, drain = true}", "stage.drain: the others come when all"),
    ("stage = {rate_per_s = 1.0, num_requests = 2}", 'type = "trace" does not draw them one by one')])
def test_warm_ups_that_cannot_be_are_refused(run, warmup, message):
    workload = {"workload": DRAWN + "num_requests = 3\n"} if "trace" not in message else {"outputs": OUTPUTS}
    with pytest.raises(InputErrors, match=message):
        run(f"{LOOP}[workload.warmup]\n{warmup}", **workload)


def test_a_stage_that_warms_up_has_no_images(run):
    images = ('images = {count = {distribution = "constant", tokens = 1}, rule = "tokens_per_image", '
              "tokens_per_image = 9}\n")
    with pytest.raises(InputErrors, match=r"workload\.warmup\.stage: has no images, the others do"):
        run(LOOP + "[workload.warmup]\nstage = {concurrency = 1, num_requests = 2}",
            workload=f"{DRAWN}num_requests = 3\n{images}")


@pytest.mark.parametrize("warmup", ["copies_of_first = 1", "stage = {concurrency = 1, num_requests = 1}"])
def test_the_grace_of_a_load_begins_when_its_warm_up_is_over(run, warmup):
    # A warm-up of 5 ms; then one slot until 5 + 6: a request at 5, and one at 10, which is given up at 5 + 8 = 13.
    drawn = ('type = "synthetic"\nnum_requests = 3\nduration_s = 0.006\nprompt_tokens = {distribution = "constant", '
             'tokens = 9}\noutput_tokens = {distribution = "constant", tokens = 5}\n')
    load = f'mode = "concurrency"\nconcurrency = 1\ngrace_s = 0.002\n[workload.warmup]\n{warmup}'
    result = run(load, workload=drawn)

    assert ms(result, "arrival_ns")[:2] == [5, 10]
    assert result.requests["status"].tolist() == [
        records.COMPLETED, records.TIMED_OUT, records.NOT_SENT, records.COMPLETED]
    assert result.requests["completed_ns"].tolist()[3] == 5 * MS


def test_users_send_so_often_or_as_fast_as_answers_come(run):
    # Two users, 100 turns a second: each every 20 ms. The second begins 10 ms later; its answer takes 30 ms, so its
    # next turn follows at once and the one after it 20 ms later.
    result = run('mode = "user_rate"\nusers = 2\nrate_per_s = 100.0', [1, 30, 1, 1, 1, 1])

    by_user = result.requests[np.argsort(result.requests["request_id"])]
    assert (by_user["arrival_ns"] / MS).tolist() == [0, 10, 20, 40, 40, 60]


def test_users_with_only_an_end_send_what_is_due(run):
    # Four users, 100 turns a second for 55 ms: at 0, 10, ..., 50.
    load = 'mode = "user_rate"\nusers = 4\nrate_per_s = 100.0'

    assert sorted(ms(run(load, workload=DRAWN + "duration_s = 0.055\n"), "arrival_ns")) == [0, 10, 20, 30, 40, 50]
    sessions = ('type = "sessions"\nduration_s = 1.0\n[workload.sessions]\n'
                'rounds = {distribution = "constant", value = 3}\n'
                'new_tokens = {distribution = "constant", tokens = 9}\n'
                'output_tokens = {distribution = "constant", tokens = 9}\n')
    with pytest.raises(InputErrors, match=r"workload\.num_sessions: missing; users take one session after the other"):
        run(load, workload=sessions)


def test_keys_of_another_mode_are_refused(run):
    with pytest.raises(InputErrors) as refused:
        run('mode = "lanes"\nlanes = 2\nconcurrency = 3', OUTPUTS)
    assert 'mode = "lanes" does not read concurrency' in str(refused.value)
    with pytest.raises(InputErrors, match='mode = "concurrency" needs concurrency'):
        run('mode = "concurrency"', OUTPUTS)
    with pytest.raises(InputErrors, match="nothing in this workload waits for the end of another request"):
        run("client_delay_s = 0.5", OUTPUTS)


def test_a_measure_that_leaves_nobody_is_refused(run):
    with pytest.raises(InputErrors, match="leave none of 5 requests"):
        run(LOOP + "[workload.measure]\nwarmup_requests = 3\ncooldown_requests = 2", OUTPUTS)
    result = run(LOOP + "[workload.measure]\nwarmup_s = 3.0", OUTPUTS)
    assert result.summary["unserved"] == result.summary["diagnosis"][0]


def test_cooling_down_counts_back_from_the_last_completion(run):
    result = run(LOOP + "[workload.measure]\ncooldown_s = 0.0005", OUTPUTS)

    assert result.requests["measured"].tolist() == [1, 1, 1, 0, 0]


@pytest.mark.parametrize("assign", ["static", "dynamic"])
def test_plays_come_again_until_the_end_of_the_load(run, assign):
    # Two lanes, requests of 1 to 3 ms that come again: nobody waits, so a lane is busy until 0.5 s.
    load = f'mode = "lanes"\nlanes = 2\nrecycle = true\nassign = "{assign}"'
    result = run(load, [3, 1, 2], workload="duration_s = 0.5")

    sent = result.requests[result.requests["arrival_ns"] >= 0]
    assert sent["arrival_ns"].max() >= 497 * MS
    assert 400 < len(sent) < 600
    assert len(result.requests) - len(sent) < 300           # of the lane whose plays are longer
