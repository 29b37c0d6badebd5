"""What forests know of their own error: folds of their samples left out; by hand where a line is learnt."""
from pathlib import Path

import numpy as np
import pytest

import simulator
from simulator.latency.forest import cache as forest_cache
from simulator.latency.forest import training as forest_training
from simulator.latency.forest.errors import operator_errors, varied
from simulator.latency.forest.model import Forest
from simulator.latency.forest.profiles import Samples
from support.forest_profiles import network_rows, parameters_for, write, write_profiles
from support.small_models import DENSE, deploy

pytest.importorskip("sklearn", reason="needs scikit-learn")

LINE = {"estimator": "linear_regression", "polynomial_degree": [1], "polynomial_include_bias": [True],
        "polynomial_interaction_only": [False], "fit_intercept": [True]}
CHOSEN = {"polynomial__degree": 1, "polynomial__include_bias": True, "polynomial__interaction_only": False,
          "linear__fit_intercept": True}


def test_errors_are_those_of_folds_left_out(tmp_path):
    # Two folds of samples on 2 x + 1 but for the last, 18 where the line says 9: the first half says so; the second
    # one, (3, 7) and (4, 18), says -15 and -4 of the first, of which nothing is told.
    samples = {"add": Samples(np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([3.0, 5.0, 7.0, 18.0]))}
    settings = parameters_for(tmp_path, k_fold_cv_splits=10, **LINE)

    found = forest_training.left_out(samples, settings, {"add": CHOSEN})["add"]

    assert found == pytest.approx([0.0, np.log(2.0)], abs=1e-9)


def test_what_lies_on_a_line_has_no_error_and_folds_are_trained_once(tmp_path, monkeypatch):
    parameters, deployment = parameters_for(write_profiles(tmp_path), **LINE), deploy(DENSE)
    made, left_out = [], forest_cache.left_out
    monkeypatch.setattr(forest_cache, "left_out", lambda *given: made.append(1) or left_out(*given))

    first, profiles = operator_errors(parameters, deployment, None)
    again, _ = operator_errors(parameters, deployment, None)

    assert made == [1] and first.keys() == again.keys() == Forest(parameters, deployment).breakdown(
        prefill=[(16, 0)], decode=[32]).keys()
    assert first["mlp_act"].error_frac == pytest.approx(0.0, abs=1e-9)      # 7 us a token
    assert profiles["mlp_act"]["file"].endswith("mlp.csv")
    assert profiles["mlp_act"]["measured"] == {"tokens": [1, 64]}
    assert profiles["attn_decode"]["file"].endswith("attention.csv")
    assert first["mlp_act"].is_outside[[64, 0]].tolist() == [False, True]


def test_factors_reach_each_operator_and_the_launch_of_all_reduces(tmp_path):
    write(write_profiles(tmp_path, tensor_parallel=2) / "all_reduce.csv", network_rows("all_reduce", 2))
    parameters = parameters_for(tmp_path, all_reduce_file=str(tmp_path / "all_reduce.csv"),
                                nccl_cpu_launch_overhead_us=20.0, nccl_cpu_skew_overhead_us=1.0)
    deployment = deploy(DENSE, tensor_parallel=2)
    reading = Forest.read(parameters, deployment)
    errors, _ = operator_errors(parameters, deployment, None)
    plain = Forest(parameters, deployment, reading=reading).breakdown(prefill=[(16, 16)], decode=[32, 48])

    for name in plain:
        given = Forest.varied({"reading": reading}, errors, {name: (3.0, 3.0)})
        found = Forest(parameters, deployment, reading=given["reading"]).breakdown(prefill=[(16, 16)], decode=[32, 48])
        assert found == pytest.approx(plain | {name: 3.0 * plain[name]})


def test_beyond_the_samples_the_other_factor_counts(tmp_path):
    parameters, deployment = parameters_for(write_profiles(tmp_path), max_tokens=128), deploy(DENSE)
    tables = Forest.read(parameters, deployment).tables
    errors, _ = operator_errors(parameters, deployment, None)

    found = varied(tables, errors, {"mlp_act": (2.0, 5.0)}, 0.0).tokens["mlp_act"] / tables.tokens["mlp_act"]

    assert found[64] == 2.0 and found[65] == 5.0


@pytest.mark.slow
def test_an_experiment_tells_intervals_and_what_dominates(tmp_path):
    configs = Path(__file__).parents[2] / "configs"
    summary = simulator.run(configs / "forest.toml", {
        "latency.uncertainty": True, "latency.uncertainty_replications": 4, "workload.num_requests": 50,
        "latency.num_estimators": [5], "latency.k_fold_cv_splits": 3, "latency.cache_directory": str(tmp_path)}).summary

    told = summary["uncertainty"]
    interval = told["metrics"]["tpot_ms.mean"]
    assert interval["low"] < interval["nominal"] < interval["high"]
    assert {row["name"] for row in told["operators"]} >= {"attn_decode", "mlp_up_proj", "all_reduce"}
    assert sum(row["share_of_time"] for row in told["operators"]) == pytest.approx(1.0, abs=1e-6)
    assert all(row["tables"][0]["measured_range"] for row in told["operators"])
