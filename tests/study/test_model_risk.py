"""A study with a confidence over the model runs slower servers, and says how much slower and from which deployments."""
import json
import math

import pytest

from simulator import cli
from simulator.errors import InputErrors
from simulator.latency.uncertainty.left_out import LEFT_OUT, TPOT, TTFT
from simulator.study.sweep.bench import Bench
from simulator.study.sweep.plan import trials_of
from simulator.study.sweep.study_file import read_study

STUDY = """
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
engine = {max_model_len = 4096}
slo = {ttft_ms = 100.0, classes = [{name = "fast", ttft_ms = 50.0}]}
workload = {type = "synthetic", num_requests = 40, arrival = {rate_per_s = 4.0}, prompt_tokens = \
    {distribution = "constant", tokens = 500}, output_tokens = {distribution = "constant", tokens = 20}}
[study]
kind = "sweep"
axes = {"engine.max_num_seqs" = [8]}
[study.statistics]
warmup = "none"
"""


@pytest.fixture
def study(tmp_path):
    def written(confidence=None, text=STUDY, **overrides):
        path = tmp_path / "study.toml"
        path.write_text(text)
        given = {} if confidence is None else {"study.statistics.model_confidence": confidence}
        return read_study(path, given | overrides)

    return written


def ended(study):
    return Bench(study).run(trials_of(study, study.points())[0])


def test_runs_are_of_a_slower_server_with_the_ttft_of_its_own_errors(study):
    found, risk = ended(study(0.9)), study(0.9).risk
    by_hand = ended(study(**{"latency.time_factor": risk.time_factor}))

    assert risk.time_factor == pytest.approx(math.exp(0.214))       # 90 % of TPOT under `roofline`
    assert risk.first_token_factor == pytest.approx(math.exp(1.13))
    assert found.summary["tpot_ms.mean"] == by_hand.summary["tpot_ms.mean"]
    assert found.summary["ttft_ms.p99"] == pytest.approx(
        by_hand.summary["ttft_ms.p99"] * math.exp(1.13 - 0.214), rel=1e-9)
    assert found.extra["interval"]["ttft_ms.mean"] > by_hand.extra["interval"]["ttft_ms.mean"]
    assert "90 % of confidence over the model" in found.extra["diagnosis"][-1]


def test_good_requests_keep_their_bound_by_the_whole_factor(study):
    slo, risk = study(0.9).experiment_of({}).slo, study(0.9).risk

    assert slo.ttft_ms == pytest.approx(100.0 / risk.remaining_factor) and slo.tpot_ms is None
    assert slo.classes[0].ttft_ms == pytest.approx(50.0 / risk.remaining_factor)


def test_without_a_confidence_nothing_changes(study):
    assert study().risk is None and study().experiment_of({}).latency.time_factor is None
    assert "model" not in ended(study()).extra["diagnosis"]


@pytest.mark.parametrize("backend", LEFT_OUT)
def test_factors_grow_with_the_confidence(backend):
    for errors in LEFT_OUT[backend].values():
        factors = [errors.factor(share) for share in (0.5, 0.8, 0.9, 0.95, 0.999)]
        assert factors == sorted(factors) and factors[-1] < math.exp(errors.logarithms[-1])
        assert list(errors.logarithms) == sorted(errors.logarithms)
    assert len(LEFT_OUT[backend][TPOT].deployments) == len(LEFT_OUT[backend][TTFT].deployments) + 1


def test_beyond_what_deployments_can_show_the_text_says_so(study):
    assert "one of them decides" in study(0.999).risk.sentence      # 11 deployments show 11 / 12
    assert "one of them decides" not in study(0.9).risk.sentence


@pytest.mark.parametrize("confidence", [0.4, 1.0, 1.5])
def test_a_confidence_below_a_half_or_of_one_is_refused(study, confidence):
    with pytest.raises(InputErrors, match=r"study\.statistics\.model_confidence"):
        study(confidence)


@pytest.mark.parametrize(("overrides", "why"), [
    ({"latency.backend": "linear", "latency.base_us": 1.0}, "no errors of `linear` on deployments left out are known"),
    ({"engine.scheduler": "orca"}, 'no deployment of engine.scheduler = "orca" was left out'),
    ({"latency.time_factor": 2.0}, "expected no latency.time_factor beside it"),
    ({"study.axes": {"latency.backend": ["roofline"]}}, "expected one latency.backend in all pools and points")],
    ids=["backend", "engine", "factor", "axis"])
def test_what_no_deployment_shows_is_refused(study, overrides, why):
    with pytest.raises(InputErrors) as refused:
        study(0.9, **overrides)

    assert why in str(refused.value)


def test_nobody_served_has_no_ttft_at_any_confidence(study):
    found = ended(study(0.9, **{"engine.max_model_len": 100}))

    assert found.summary["ttft_ms.mean"] is None and found.summary["requests.completed"] == 0


def test_runs_of_two_confidences_are_different_runs(study):
    ids = [trials_of(each, each.points())[0].id for each in (
        study(), study(0.8), study(0.9), study(**{"latency.time_factor": study(0.9).risk.time_factor}))]

    assert len(set(ids)) == 4


def test_the_json_of_a_sweep_names_factors_and_deployments(study, tmp_path, capsys):
    study()
    assert cli.main(["sweep", str(tmp_path / "study.toml"), "--set", "study.statistics.model_confidence=0.8",
                     "--out", str(tmp_path / "out")]) == 0
    content = json.loads((tmp_path / "out" / "summary.json").read_text())["model_confidence"]

    assert (content["confidence"], content["backend"]) == (0.8, "roofline")
    assert content["time_factor"] == pytest.approx(math.exp(0.137))
    assert "h200-minimax-m2.5-fp8" in content["deployments"]["tpot_ms"]
    assert "80 % of confidence over the model" in " ".join(capsys.readouterr().out.split())
