"""Stages last as long as they say, with requests in them or without."""
import numpy as np
import pytest

import simulator
from simulator import cli
from simulator.errors import InputErrors

EXPERIMENT = """
engine = {num_gpu_blocks = 1000, max_model_len = 4000}
[latency]
backend = "linear"
base_us = 1000.0
per_sequence_us = 0.0
per_prefill_token_us = 0.0
per_context_token_us = 0.0
[workload]
type = "synthetic"
prompt_tokens = {distribution = "constant", tokens = 100}
output_tokens = {distribution = "constant", tokens = 10}
"""
QUIET = [{"rate_per_s": rate, "duration_s": 60.0} for rate in (10.0, 0.05, 10.0)]


@pytest.fixture
def path(tmp_path):
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    return tmp_path / "experiment.toml"


def run(path, stages, **overrides):
    return simulator.run(path, {"workload.load.mode": "stages", "workload.load.stages": stages} | overrides)


def arrivals_s(result):
    return result.requests["arrival_ns"] / 1e9


def test_a_quiet_minute_lasts_a_minute(path):
    # Gaps of 0.1, 20 and 0.1 s from the beginning of each stage: the last request of the second one comes at 100 s.
    arrivals = arrivals_s(run(path, [stage | {"process": "constant"} for stage in QUIET]))

    assert np.histogram(arrivals, [0, 60, 120, 180])[0].tolist() == [599, 2, 599]
    assert arrivals[599:602] == pytest.approx([80.0, 100.0, 120.1])
    assert arrivals[-1] == pytest.approx(179.9)


@pytest.mark.parametrize("process", [{"process": "poisson"}, {"process": "gamma", "cv": 2.0}])
@pytest.mark.parametrize("seed", range(4))
def test_whatever_draws_the_gaps(path, process, seed):
    arrivals = arrivals_s(run(path, [stage | process for stage in QUIET], seed=seed))
    counts = np.histogram(arrivals, [0, 60, 120, 180])[0]

    assert abs(counts[[0, 2]] - 600).max() < 250        # 4 standard deviations of the burstier: 4 x 2 x sqrt(600) = 196
    assert counts[1] < 20
    assert arrivals[-1] > 178


def test_a_minute_may_be_empty(path):
    # 10 stages of 0.5 requests on average; whatever the seed, the last begins at 90 s.
    stages = [{"rate_per_s": 0.05, "duration_s": 10.0}] * 9 + [{"concurrency": 1, "num_requests": 1}]
    for seed in range(6):
        result = run(path, stages, seed=seed)
        empty = np.histogram(arrivals_s(result)[:-1], np.arange(0, 91, 10))[0] == 0

        assert arrivals_s(result)[-1] == 90
        assert [place for place in range(9) if any(f"stages[{place}]: no request" in line for line in
                                                   result.summary["diagnosis"])] == np.flatnonzero(empty).tolist()


@pytest.mark.parametrize("process", ["constant", "even_random", "poisson_seconds"])
def test_the_first_stage_may_be_empty(path, process):
    stages = [{"rate_per_s": 0.01, "duration_s": 20.0, "process": process}, {"concurrency": 1, "num_requests": 1},
              {"rate_per_s": 0.01, "duration_s": 20.0, "process": process, "interval_s": 1.0, "drain": True},
              {"concurrency": 1, "num_requests": 1}]

    # It ends 10 iterations of 1 ms after it has come; 1 s of a pause, 20 s of nothing.
    assert arrivals_s(run(path, stages)).tolist() == [20, 41.01]


def test_all_of_them_may_not(path):
    with pytest.raises(InputErrors, match=r"stages: no request comes in any of them, the first of 20 s at 0.01 req"):
        run(path, [{"rate_per_s": 0.01, "duration_s": 20.0, "process": "constant"}])


@pytest.mark.parametrize(("stage", "next_s"), [
    ({"num_requests": 3}, 3),                                           # until they have come
    ({"num_requests": 3, "duration_s": 20.0}, 3),                       # the number is reached first
    ({"num_requests": 30, "duration_s": 20.0}, 20),
    ({"duration_s": 20.5, "drain": True}, 20.5)])                       # all have ended before
def test_what_comes_first_ends_a_stage(path, stage, next_s):
    stages = [{"rate_per_s": 1.0, "process": "constant"} | stage, {"concurrency": 1, "num_requests": 1}]

    assert arrivals_s(run(path, stages))[-1] == next_s


def test_a_ceiling_does_not_shorten_a_stage(path):
    stages = [{"rate_per_s": 0.3, "process": "constant", "duration_s": 5.0, "max_in_flight": 1},
              {"concurrency": 1, "num_requests": 1}]

    assert arrivals_s(run(path, stages)).tolist() == pytest.approx([10 / 3, 5])


def test_a_stage_that_warms_up_lasts_and_may_be_empty(path):
    after = [{"concurrency": 1, "num_requests": 1}]
    busy = {"rate_per_s": 1.0, "process": "constant", "duration_s": 5.5}

    assert arrivals_s(run(path, after, **{"workload.warmup.stage": busy}))[0] == 5.5
    quiet = run(path, after, **{"workload.warmup.stage": busy | {"rate_per_s": 0.1}})
    assert arrivals_s(quiet).tolist() == [5.5]
    assert "workload.warmup.stage: no request comes in 5.5 s of it." in quiet.summary["diagnosis"]


def written(path, stages, capsys, warmup=""):
    path.write_text(f"{EXPERIMENT}[workload.load]\nmode = \"stages\"\nstages = [{stages}]\n{warmup}")
    assert cli.main(["workload", str(path), "--out", str(path.with_name("trace.csv"))]) == 0
    return [float(row.split(",")[1]) for row in path.with_name("trace.csv").read_text().split()[1:]], (
        capsys.readouterr().out)


def test_the_times_of_stages_are_written_down(path, capsys):
    rate = '{rate_per_s = 1.0, process = "constant", duration_s = 2.5}'
    times_s, text = written(path, f"{rate}, {rate}", capsys)

    assert times_s == [1, 2, 3.5, 4.5]
    assert 'the times of the stages are in it: serve it with mode = "timestamps"' in " ".join(text.split())
    assert times_s == arrivals_s(simulator.run(path)).tolist()


@pytest.mark.parametrize(("stages", "times_s"), [
    ('{rate_per_s = 1.0, process = "constant", duration_s = 2.5}, {concurrency = 1, num_requests = 1}', [1, 2, 0]),
    ('{concurrency = 1, num_requests = 1}, {rate_per_s = 1.0, process = "constant", num_requests = 1}', [0, 0])])
def test_those_that_depend_on_ends_are_not(path, capsys, stages, times_s):
    found_s, text = written(path, stages, capsys)

    assert found_s == times_s
    assert "it has 0 for them; serve it with the same [workload.load]" in " ".join(text.split())
