"""What is to be largest or smallest, and the three meanings of tokens a second that a user sees."""
import math

import numpy as np
import pytest

import simulator
from simulator.config.load import load_experiment
from simulator.study.statistics.intervals import Estimate
from simulator.study.statistics.of_run import gap_mean
from simulator.study.sweep.trial import Finished
from simulator.study.tuning.objectives import Objective, estimates_of, numbers_of, objectives_in


def end(summary, **extra):
    return Finished("0" * 16, 0, 0, 0, "done", None, 1, summary, extra, 0.0)


def test_two_meanings_of_tokens_a_second():
    # Nine gaps of 10 ms and one of 100: TPOT is 190 / 10 = 19 ms, 52.6 tokens/s; (9 x 100 + 10) / 10 = 91 by gaps.
    gaps_ns, counts = np.array([10_000_000, 100_000_000]), np.array([9, 1])
    tpot_ms = float((gaps_ns * counts).sum() / counts.sum()) / 1e6
    assert gap_mean(gaps_ns, counts) == 91.0
    assert gap_mean(gaps_ns[:0], counts[:0]) is None
    assert gap_mean(np.array([0, 10]), np.array([1, 1])) is None

    found = numbers_of(end({"tpot_ms.mean": tpot_ms}, speed_gap_mean=91.0), load_experiment("configs/linear.toml"))
    assert round(found["tokens_per_s_per_user"], 1) == 52.6
    assert found["tokens_per_s_per_user_gap_mean"] == 91.0


def test_by_gpu_is_by_those_paid_for_and_by_user_by_how_many_there_are():
    experiment = load_experiment("configs/closed_loop.toml")         # 32 users
    found = numbers_of(end({"output_throughput": 640.0}, gpus_paid=2.5), experiment, 3.0)

    assert found["output_throughput_per_gpu"] == 256.0
    assert found["tokens_per_s_per_user_by_concurrency"] == 20.0
    assert (found["gpus"], found["rate"], found["cost_per_hour"]) == (2.5, 3.0, None)
    assert found["request_goodput_per_gpu"] is None


def test_objectives_have_intervals_over_seeds_or_within_one_run():
    objectives = (Objective("a", True), Objective("b", False))
    # t(0.975, 1) = 12.7062, half the difference is 1.
    found = estimates_of(objectives, [{"a": 1.0, "b": 5.0}, {"a": 3.0, "b": 5.0}], [end({}), end({})], 0.95)
    assert found[0].mean == 2.0 and found[0].half_width == pytest.approx(12.7062047)
    assert found[1] == Estimate(5.0, 0.0)
    alone = estimates_of(objectives, [{"a": 1.0, "b": None}], [end({}, interval={"a": 0.25})], 0.95)
    assert alone[0] == Estimate(1.0, 0.25) and math.isnan(alone[1].mean)


def test_goals_are_max_and_min():
    assert objectives_in({"ttft_ms": {"p99": "min"}, "gpus": "min"}, "x") == (
        (Objective("ttft_ms.p99", False), Objective("gpus", False)), [])
    assert len(objectives_in({"gpus": "most", "rate": 1}, "x.toml: study.objectives")[1]) == 2
    (told,) = objectives_in({}, "x.toml: study.objectives")[1]
    assert "expected at least one" in told


def test_replicas_that_come_and_go_are_paid_for_while_they_are_there(tmp_path):
    from simulator.api import Order, run_ordered
    from simulator.study.statistics.of_run import Look
    from simulator.study.sweep.bench import gpus_paid

    experiment = load_experiment("configs/autoscaling.toml", {"workload.num_requests": 400})
    look = Look()
    result = run_ordered(Order(experiment, None, True, True, settle=look))
    up_s = [each["up_s"] for each in result.summary["replicas"]]
    assert max(up_s) / result.summary["clock_s"] <= gpus_paid(experiment, look.paid_share) < len(up_s)
    assert gpus_paid(experiment, look.paid_share) >= sum(up_s) / result.summary["clock_s"] - 1e-9
    still = load_experiment("configs/quickstart.toml", {"workload.num_requests": 20, "topology.tensor_parallel": 2,
                                                        "topology.replicas": 3})
    run_ordered(Order(still, None, True, True, settle=look))
    assert gpus_paid(still, look.paid_share) == 6.0
    assert simulator.run(still).summary["requests"]["completed"] == 20


def test_rates_of_points_are_objectives(study, tune):
    points = "".join(f'\n[[study.points]]\n"workload.arrival.rate_per_s" = {rate}\n' for rate in (5.0, 9.0))
    status, told = tune(study(
        ('kind = "tune"', 'kind = "tune"\ndesign = "list"'), ('layouts = ["aggregated", "disaggregated"]', ""),
        ('output_throughput_per_gpu = "max"\ntokens_per_s_per_user = "max"', 'rate = "max"'),
        ('[study.axes]\n"topology.tensor_parallel" = [1, 2]\n"engine.max_num_seqs" = [8, 64]\n', ""), add=points))

    assert status == 0 and told["best"]["rate"] == 9.0 == told["best"]["values"]["rate"]["mean"]
