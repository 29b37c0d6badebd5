"""A real vLLM server on two CPU cores: fitted to one load, held out another."""
import json

import numpy as np
import pytest

from simulator import cli
from simulator.study.calibration.calibrate_table import FitKey
from simulator.study.calibration.confidence import of_steps
from simulator.study.calibration.data import read_steps_of
from simulator.study.calibration.grades import grade
from simulator.study.calibration.steps import PRICES, gaps_us, predicted_us, problem_of, solved
from support.vllm_cpu import DATA, bring, write_study

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data/measured_vllm_cpu")
pytest.importorskip("scipy", reason="the extra `fit`")

FIT = {key: FitKey(min=0.0, max=1e6) for key in PRICES}
NOTHING = dict.fromkeys(PRICES, 0.0)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The folder with w7 and w8, imported."""
    folder = tmp_path_factory.mktemp("measured")
    bring(folder)
    return folder


@pytest.fixture(scope="module")
def steps(data):
    return {name: read_steps_of(data / name / "steps.csv", False) for name in ("w7", "w8")}


def errors_of(steps, prices):
    predicted = predicted_us(steps, dict(zip(PRICES, prices, strict=True)))
    found = grade(steps.duration_us, predicted, np.zeros(steps.num_steps, np.int64))["request_level"]
    return found | {"ratio": predicted.sum() / steps.duration_us.sum()}


def test_the_worked_example_of_least_squares(steps):
    prices = solved(problem_of([(steps["w7"], NOTHING)], FIT), has_huber=False)

    # 14,412.29 with times as doubles; as written, to the microsecond, 14,412.298
    assert prices == pytest.approx([14_412.29, 602.70, 565.54, 0.0, 0.0], abs=0.01)
    assert errors_of(steps["w7"], prices)["mape"] == pytest.approx(0.1060, abs=5e-5)
    held = errors_of(steps["w8"], prices)
    assert (held["mape"], held["median_ape"], held["bias"]) == pytest.approx((0.0910, 0.0834, 0.0376), abs=5e-5)
    assert (held["ratio"], held["pearson_r"]) == pytest.approx((1.0123, 0.9735), abs=5e-5)


def test_the_other_way_round_is_worse(steps):
    prices = solved(problem_of([(steps["w8"], NOTHING)], FIT), has_huber=False)

    assert errors_of(steps["w7"], prices)["mape"] == pytest.approx(0.139, abs=5e-4)


@pytest.mark.slow
def test_the_bootstrap_tells_what_this_load_does_not(steps):
    found = of_steps(problem_of([(steps["w7"], NOTHING)], FIT), FIT, 0)
    base, sequence, prefill, decode, context = found.values()

    # other draws than the page's: 14,035 to 14,914; 0 to 837; 554 to 583; 0 to 521; 0 to 2.9
    assert (base.low, base.high) == pytest.approx((14_035, 14_914), rel=0.015)
    assert (prefill.low, prefill.high) == pytest.approx((554, 583), rel=0.01)
    assert (sequence.low, decode.low, context.low) == (0.0, 0.0, 0.0)
    assert (sequence.high, decode.high, context.high) == pytest.approx((837, 521, 2.9), rel=0.15)
    assert [each.reason is None for each in found.values()] == [True, False, True, False, False]
    assert sequence.reason.startswith("its interval holds 0; what would tell it: iterations with one and with many")


def test_the_gaps_between_iterations(steps):
    assert np.nanmedian(gaps_us(steps["w7"])) == pytest.approx(174, abs=0.5)
    assert np.nanmedian(gaps_us(steps["w8"])) == pytest.approx(166, abs=0.5)


def study(data, more):
    write_study(data / "study.toml", more)
    return str(data / "study.toml")


@pytest.mark.slow
def test_the_command_fits_one_load_and_predicts_the_other(data, capsys):
    assert cli.main(["calibrate", study(data, ""), "--out", str(data / "out")]) == 0
    told, found = capsys.readouterr(), json.loads((data / "out/calibration.json").read_text())

    # with Huber's weights, 14,450 and 567: held out 9.06 %, 9.10 without
    assert found["coefficients"]["latency.base_us"]["value"] == pytest.approx(14_412, rel=0.01)
    assert found["coefficients"]["latency.host.iteration_us"]["value"] == pytest.approx(174, abs=0.5)
    assert found["held_out"]["mape"] == pytest.approx(0.0906, abs=5e-4)
    assert found["transfers"] and "held out: MAPE of iterations 9.1 %, median 8.2 %; training: 10.6 %" in told.out
    assert "* not identified: latency.per_sequence_us" in told.out
    assert "client-bound: one of a hundred requests was sent" in told.err          # a note: iterations are the engine's
    assert found["held_out"]["e2el"]["request_level"]["quality"] == "excellent"
    assert found["held_out"]["e2el"]["within_noise"]["wasserstein_over_mean"]


def test_requests_of_a_late_client_are_not_fitted_to_unless_that_is_forced(data, capsys):
    file = study(data, 'level = "requests"\nevaluations = 10')

    assert cli.main(["calibrate", file, "--out", str(data / "requests")]) == 2
    told = capsys.readouterr().err
    assert "w7/observed.csv: client-bound: one of a hundred requests was sent 3.68 ms late or more" in told
    assert not (data / "requests").exists()
