"""inference-perf's stages; iterations of 1 ms, and 1 us from an answer to the next request."""
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain.load import Load, Stage
from simulator.errors import InputErrors
from simulator.workload.stages import poisson_seconds_s
from support import presets
from support.presets import MS, arrivals_ms, section

PRESET = 'preset = "inference_perf"\n'


@pytest.fixture
def run(tmp_path):
    return lambda text, *args, **keys: presets.run(tmp_path, PRESET + text, *args, **keys)


def test_a_constant_stage_has_so_many_requests_and_ends_with_the_last(run):
    # int(20 x 0.99) = 19 exponential gaps that add up to 0.99 s.
    arrivals = arrivals_ms(run("workers = 1\nstages = [{rate_per_s = 20.0, duration_s = 0.99}]\n"))

    assert len(arrivals) == 19
    assert arrivals[-1] == 990.0
    gaps = np.diff([0.0, *arrivals])
    assert gaps.min() > 0
    assert gaps.max() > 2 * gaps.min()


def test_a_stage_begins_an_interval_after_all_before_it_have_ended(run):
    # The first sends its last request at 10 ms, which ends at 110; then 1 s.
    stage = "{rate_per_s = 100.0, duration_s = 0.01}"
    result = run(f"workers = 1\nstages = [{stage}, {stage}]\n", 100)

    assert arrivals_ms(result) == [10.0, 10.0 + 100.001 + 1000 + 10]
    shorter = run(f"workers = 1\ninterval_s = 0.0\nstages = [{stage}, {stage}]\n", 100)
    assert arrivals_ms(shorter) == [10.0, 10.0 + 100.001 + 10]


def test_a_poisson_stage_fills_second_after_second(run):
    arrivals_s = np.array(arrivals_ms(run(
        'load_type = "poisson"\nworkers = 1\nstages = [{rate_per_s = 4.0, duration_s = 10.0}]\n'))) / 1e3

    assert len(arrivals_s) == 40                    # however long they take
    seconds = np.ceil(arrivals_s - 1e-12)
    for second in np.unique(seconds)[:-1]:          # the last one may be cut
        assert arrivals_s[seconds == second].max() == second
    counts = np.bincount(seconds.astype(int))[1:]
    assert len(set(counts)) > 2


def literal_poisson_times(rate, count, draw_number, draw_gaps):
    """Return what the tool's two timers yield: a number for each second, its gaps normalised to the second."""
    now_s, times_s = 0.0, []
    while len(times_s) < count:
        number = draw_number(rate)
        if number < 1:
            now_s += 1.0
            continue
        gaps = draw_gaps(number)
        begin_s, scale = now_s, 1.0 / sum(gaps)
        for gap in gaps:
            now_s += gap * scale
            times_s.append(now_s)
        now_s = begin_s + 1.0
    return times_s[:count]


@given(st.integers(0, 2**32), st.floats(0.2, 30.0), st.integers(1, 60))
def test_the_seconds_of_a_literal_twin(seed, rate, count):
    found = poisson_seconds_s(np.random.default_rng(seed), rate, count)

    # The twin draws the same numbers: block by block, the numbers of its seconds, then all gaps in them.
    generator, queue, gaps = np.random.default_rng(seed), [], []

    def number_of(rate):
        if not queue:
            queue.extend(generator.poisson(rate, int(count_left() / rate) + 1).tolist())
            gaps.extend(generator.standard_exponential(sum(queue)).tolist())
        return queue.pop(0)

    drawn = []

    def count_left():
        return count - sum(drawn)

    def gaps_of(number):
        drawn.append(number)
        taken, gaps[:] = gaps[:number], gaps[number:]
        return taken

    assert found == pytest.approx(literal_poisson_times(rate, count, number_of, gaps_of), rel=1e-9)
    assert len(found) == count
    assert (np.diff(found) >= 0).all()


def test_concurrent_stages_are_closed_loops(run):
    # Two slots, outputs of 2: 0, 0, 2; the last ends at 4.001, and an interval of 10 ms later three come.
    result = run('load_type = "concurrent"\ninterval_s = 0.01\nstages = [{concurrency_level = 2, num_requests = 3}, '
                 "{concurrency_level = 3, num_requests = 4}]\n", 2)

    assert arrivals_ms(result) == [0, 0, 2.001, 14.002, 14.002, 14.002, 16.003]


def test_each_worker_has_so_many_requests_at_once(run):
    # Requests of 50 ms, 100 a second: all come within 100 ms, but only one, or two, at once.
    stage = "stages = [{rate_per_s = 100.0, duration_s = 0.1}]\n"
    alone = run(f"workers = 1\nworker_max_concurrency = 1\n{stage}", 50)
    pair = run(f"workers = 2\nworker_max_concurrency = 1\n{stage}", 50)

    assert np.diff(arrivals_ms(alone))[1:] == pytest.approx([50.001] * 8)
    running = [(time, 1) for time in arrivals_ms(pair)] + [
        (time / MS, -1) for time in pair.requests["completed_ns"].tolist()]
    assert max(np.cumsum([change for _, change in sorted(running)])) == 2
    # Nobody is lost who comes after the end of the stage.
    assert pair.summary["requests"]["completed"] == alone.summary["requests"]["completed"] == 10
    assert pair.summary["requests"]["not_sent"] == 0


def test_the_load_is_what_the_stages_say(tmp_path):
    text = (PRESET + "workers = 3\nstages = [{rate_per_s = 2.0, duration_s = 5.0}, {rate_per_s = 4.0, "
            "duration_s = 5.0}]\n")
    found = section(tmp_path, text)
    rate = {"process": "even_random", "duration_s": 5.0, "drain": True, "max_in_flight": 300}

    assert found.load == Load(mode="stages", client_delay_s=1e-6, stages=(
        Stage(rate_per_s=2.0, **rate), Stage(rate_per_s=4.0, interval_s=1.0, **rate)))
    assert found.parameters.num_requests == 30
    slots = section(
        tmp_path, PRESET + 'load_type = "concurrent"\nstages = [{concurrency_level = 2, num_requests = 3}]\n')
    assert slots.load.stages == (Stage(concurrency=2, num_requests=3),)


@pytest.mark.parametrize(("text", "message"), [
    ("workers = 1\n", "workload.stages: missing"),
    ("workers = 1\nstages = []\n", "workload.stages: expected"),
    ("stages = [{rate_per_s = 2.0, duration_s = 5.0}]\n", "workers: missing; the tool takes as many as its machine"),
    ("workers = 1\nstages = [{rate_per_s = 2.0}]\n", 'stages[0]: load_type = "constant" takes rate_per_s and'),
    ("workers = 1\nstages = [{rate_per_s = 2.0, duration_s = 5.0}, {concurrency_level = 2, num_requests = 3}]\n",
     'stages[1]: load_type = "constant" takes rate_per_s and duration_s'),
    ('load_type = "concurrent"\nstages = [{rate_per_s = 2.0, duration_s = 5.0}]\n',
     'stages[0]: load_type = "concurrent" takes concurrency_level and num_requests'),
    ('load_type = "concurrent"\nworkers = 2\nstages = [{concurrency_level = 2, num_requests = 3}]\n',
     'workers, worker_max_concurrency: load_type = "concurrent" does not read them'),
    ("workers = 1\nstages = [{rate_per_s = 0.5, duration_s = 1.0}]\n", "stages[0]: nobody comes: int(0.5 x 1) is 0"),
    ("workers = 1\nstages = [{rate_per_s = 2.0, duration = 5.0}]\n", "duration: unknown key; did you mean duration_s"),
    ('load_type = "trace_replay"\nworkers = 1\nstages = [{rate_per_s = 2.0, duration_s = 5.0}]\n',
     'load_type: expected one of "concurrent", "constant", "poisson"'),
    ("workers = 1\nduration_s = 3.0\nstages = [{rate_per_s = 2.0, duration_s = 5.0}]\n",
     "duration_s: each of stages has its own"),
    ("workers = 1\nnum_requests = 9\nstages = [{rate_per_s = 2.0, duration_s = 5.0}]\n",
     'num_requests: preset = "inference_perf" has 10, found 9'),
    ("workers = 1\narrival = {rate_per_s = 2.0}\nstages = [{rate_per_s = 2.0, duration_s = 5.0}]\n",
     "has stages, which say when requests come"),
    ("workers = 1\nstages = [{rate_per_s = 2.0, duration_s = 5.0}]\nload = {mode = \"stages\", stages = "
     "[{rate_per_s = 3.0, num_requests = 5}]}\n", 'workload.load.stages: preset = "inference_perf" has'),
    ("workers = 1\nstages = [{rate_per_s = 1e9, duration_s = 1e3}]\n", "1000000000000 requests of at least 190 bytes")])
def test_bad_input(tmp_path, text, message):
    with pytest.raises(InputErrors, match=re.escape(message)):
        presets.run(tmp_path, PRESET + text)
