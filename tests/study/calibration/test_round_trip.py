"""The constants of a simulated server are found again."""
import json
import tomllib

import pytest

import simulator
from simulator import cli

pytest.importorskip("scipy", reason="the extra `fit`")
pytestmark = pytest.mark.slow

TRUTH = {"latency.base_us": 9000.0, "latency.per_sequence_us": 150.0, "latency.per_prefill_token_us": 40.0,
         "latency.per_context_token_us": 0.5, "latency.host.iteration_us": 300.0, "latency.host.queue_base_us": 3000.0}
BY_STEPS = {key: TRUTH[key] for key in TRUTH if key != "latency.host.queue_base_us"}


def calibrate(folder, fit, keys, *options):
    lines = "\n".join(f'"{key}" = {{min = 0.0, max = {high}}}' for key, high in fit.items())
    (folder / "study.toml").write_text(
        f'extends = "server.toml"\n[study]\nkind = "calibrate"\n{keys}\n[study.fit]\n{lines}\n')
    assert cli.main(["calibrate", str(folder / "study.toml"), "--out", str(folder / "out"), *options]) == 0
    return json.loads((folder / "out/calibration.json").read_text())


def test_iterations_give_their_prices_to_the_nanosecond(serve, tmp_path, capsys):
    serve(BY_STEPS, with_steps=True)
    found = calibrate(tmp_path, dict.fromkeys(BY_STEPS, 1e6), 'measured = ["measured"]\nfraction = 0.3')

    assert found["level"] == "steps"
    for key, value in BY_STEPS.items():
        assert found["coefficients"][key]["value"] == pytest.approx(value, rel=1e-4)
        assert found["coefficients"][key]["identified"]
    for side in ("training", "held_out"):
        assert found[side]["mape"] < 1e-6
        qualities = {found[side][name]["request_level"]["quality"] for name in ("step", "ttft", "tpot", "e2el")}
        assert qualities == {"excellent"}
        assert max(found[side][name]["request_level"]["mape"] for name in ("ttft", "tpot", "e2el")) < 1e-3
    assert found["transfers"]
    assert "held out: MAPE of iterations 0.0 %" in capsys.readouterr().out


def test_what_iterations_do_not_tell_is_told_by_requests(serve, tmp_path):
    serve(TRUTH, with_steps=True)
    fit = dict.fromkeys(BY_STEPS, 1e6) | {"latency.host.queue_base_us": 1e5}
    found = calibrate(tmp_path, fit, 'measured = ["measured"]\nfraction = 0.3\nevaluations = 60')["coefficients"]

    assert found["latency.host.queue_base_us"]["level"] == "requests"
    assert found["latency.host.queue_base_us"]["value"] == pytest.approx(3000.0, rel=0.02)
    assert found["latency.base_us"]["value"] == pytest.approx(9000.0, rel=1e-3)


def test_the_calibrated_experiment_is_the_server(serve, tmp_path):
    truth = serve(BY_STEPS, with_steps=True)
    calibrate(tmp_path, dict.fromkeys(BY_STEPS, 1e6), 'measured = ["measured"]')
    (tmp_path / "again.toml").write_text('extends = "out/calibrated.toml"\n' + "\n".join(
        line for line in (tmp_path / "true.toml").read_text().splitlines() if not line.startswith("extends")))

    again = simulator.run(tmp_path / "again.toml")
    assert again.summary["ttft_ms"]["mean"] == pytest.approx(truth.summary["ttft_ms"]["mean"], rel=1e-3)
    assert again.summary["e2el_ms"]["p99"] == pytest.approx(truth.summary["e2el_ms"]["p99"], rel=1e-3)
    made = tomllib.loads((tmp_path / "out/calibrated.toml").read_text())
    assert made["extends"] == "../server.toml" and set(made) == {"extends", "name", "latency"}


@pytest.mark.ci
def test_requests_alone_give_constants_and_excellent_grades(serve, tmp_path):
    truth = {key: TRUTH[key] for key in ("latency.base_us", "latency.per_sequence_us", "latency.per_prefill_token_us")}
    serve(truth)
    fit = {"latency.base_us": 1e6, "latency.per_sequence_us": 1e4, "latency.per_prefill_token_us": 1e4}
    found = calibrate(tmp_path, fit, 'measured = ["measured"]\nfraction = 0.3')

    assert found["level"] == "requests"
    for key, near in zip(truth, (0.02, 0.15, 0.06), strict=True):
        assert found["coefficients"][key]["value"] == pytest.approx(truth[key], rel=near)
    for side in ("training", "held_out"):
        assert {found[side][name]["request_level"]["quality"] for name in ("tpot", "e2el")} == {"excellent"}
    assert found["held_out"]["mape"] < 0.05
    first = (tmp_path / "out/calibration.json").read_bytes()
    lines = (tmp_path / "out/evaluations.jsonl").read_bytes()
    calibrate(tmp_path, fit, 'measured = ["measured"]\nfraction = 0.3')
    assert (tmp_path / "out/calibration.json").read_bytes() == first
    assert (tmp_path / "out/evaluations.jsonl").read_bytes() == lines       # nothing was evaluated again


@pytest.mark.ci
def test_a_roofline_finds_its_efficiencies(serve, tmp_path):
    (tmp_path / "server.toml").write_text("""
name = "server"
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
engine = {max_num_seqs = 64}
latency = {backend = "roofline"}
""")
    serve({"latency.bandwidth_efficiency": 0.6, "latency.mfu_prefill": 0.5},
          **{"workload.arrival.rate_per_s": 20.0})
    (tmp_path / "study.toml").write_text("""
extends = "server.toml"
[study]
kind = "calibrate"
measured = ["measured"]
fraction = 0.5
evaluations = 100
[study.fit]
"latency.bandwidth_efficiency" = {min = 0.3, max = 1.0, prior = 0.8, prior_sd = 0.5}
"latency.mfu_prefill" = {min = 0.1, max = 1.0}
""")
    assert cli.main(["calibrate", str(tmp_path / "study.toml"), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    found = json.loads((tmp_path / "out/calibration.json").read_text())["coefficients"]
    assert found["latency.bandwidth_efficiency"]["value"] == pytest.approx(0.6, rel=0.02)
    assert found["latency.mfu_prefill"]["value"] == pytest.approx(0.5, rel=0.1)
