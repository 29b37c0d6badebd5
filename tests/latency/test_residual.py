"""A residual on a latency model, by hand: measured iterations, their zone, and the way back to the prior."""
import json

import msgspec
import numpy as np
import pytest

import simulator
from simulator import cli
from simulator.assembly.latency import host_times, latency_model
from simulator.assembly.residual import prior_of
from simulator.assembly.site import Site
from simulator.config.load import load_experiment
from simulator.domain.step_table import Curve, StepTable, Zone, read_table, write_table
from simulator.domain.step_zone import axis_knots, zone_of
from simulator.errors import InputErrors
from simulator.latency.linear import Linear, LinearParameters
from simulator.latency.overheads.graphs import Graphs
from simulator.latency.residual.model import Residual

LINEAR = {"base_us": 1000.0, "per_sequence_us": 10.0, "per_prefill_token_us": 5.0, "per_decode_token_us": 0.0,
          "per_context_token_us": 0.01}
NOTHING = Curve((0.0, 1.0), (0.0, 0.0))
EVERYWHERE = Zone(((0.0, 1.0), (0.0, 1.0), (0.0, 1.0)), (1.0,) * 8)
SERVER = """
[engine]
max_model_len = 2048
num_gpu_blocks = 1000
max_num_seqs = 32
[latency]
backend = "linear"
base_us = 1000
per_sequence_us = 10
per_prefill_token_us = 5
per_context_token_us = 0.01
[workload]
type = "synthetic"
num_requests = 60
arrival = {process = "poisson", rate_per_s = 40.0}
prompt_tokens = {distribution = "uniform", min = 20, max = 600}
output_tokens = {distribution = "uniform", min = 2, max = 80}
"""


def table(**keys):
    return StepTable(**{"scope": "iteration", "prior": {}, "scale": 1.0, "constant_us": 0.0,
                        "curves": (NOTHING,) * 3, "zone": EVERYWHERE, "least_ratio": 0.25, "most_ratio": 4.0} | keys)


def model(**keys):
    return Residual(Linear(LinearParameters(**LINEAR)), table(**keys))


@pytest.fixture
def server(tmp_path):
    """The file of an experiment, and what names a residual in it."""
    file = tmp_path / "server.toml"
    file.write_text(SERVER)

    def _name(**keys):
        prior = prior_of(load_experiment(file).all_pools()[0])
        write_table(tmp_path / "steps.json", table(prior=prior, **keys))
        return {"latency.residual": str(tmp_path / "steps.json")}
    return file, _name


def test_a_measured_iteration_is_the_scaled_prior_with_added_times():
    # prior: 1,000 us + 3 x 10 + 100 x 5 + 200 x 0.01 = 1,532 us
    added = (Curve((0.0, 50.0, 100.0), (0.0, 10.0, 40.0)), Curve((0.0, 2.0), (0.0, 20.0)),
             Curve((0.0, 1000.0), (0.0, 60.0)))
    batch = [(100, 0)], [100, 100]

    assert model().predict(*batch) == pytest.approx(1532e-6)
    # 0.5 x 1,532 + 7 + 40 + 3 sequences x 10 + 300 tokens in KV x 0.06
    assert model(scale=0.5, constant_us=7.0, curves=added).predict(*batch) == pytest.approx(861e-6)
    assert model(scale=9.0).predict(*batch) == pytest.approx(4 * 1532e-6)       # the bounds of its ratio
    assert model(scale=0.0).predict(*batch) == pytest.approx(1532e-6 / 4)
    assert model(scale=2.0).breakdown(*batch)["residual"] == pytest.approx(1532e-6)


def test_beyond_the_zone_the_time_falls_back_to_the_prior_without_a_leap():
    zone = Zone(((0.0, 100.0, 200.0, 400.0), (0.0, 64.0), (0.0, 1e6)),
                tuple(each for each in (1.0, 1.0, 0.5, 0.0) for _ in range(4)))
    made = model(scale=2.0, zone=zone)
    ratio = [made.predict([(tokens, 0)]) / Linear(LinearParameters(**LINEAR)).predict([(tokens, 0)])
             for tokens in (1, 100, 150, 200, 300, 400, 500)]

    assert ratio == pytest.approx([2.0, 2.0, 1.75, 1.5, 1.25, 1.0, 1.0])
    assert made.provenance()["residual"] == {"file": "", "sha256": "", "measured": 2, "partly": 3, "beyond": 2}
    (note,) = made.warnings()
    assert "5 of 7 iterations (71.4%) lay outside the measured ones" in note and "2 of them wholly" in note


def test_python_and_the_compiled_model_agree():
    rng = np.random.default_rng(3)
    counts = np.column_stack([rng.choice([0, 40, 300], 200), rng.integers(1, 30, 200), rng.integers(400, 9000, 200)])
    given = table(scale=0.8, constant_us=100.0, zone=zone_of(counts[:50].astype(float)), curves=(
        Curve((0.0, 60.0, 200.0), (0.0, 50.0, 900.0)), Curve((0.0, 8.0), (0.0, 300.0)), Curve((0.0, 4e3), (0.0, 1e3))))
    prior, made, batches = Linear(LinearParameters(**LINEAR)), Residual(Linear(LinearParameters(**LINEAR)), given), []
    for tokens, sequences, context in counts.tolist():
        chunks = [(tokens, 0)] if tokens else []
        decodes = [context] + [1] * (sequences - 1)
        batches.append((chunks, decodes, (tokens, len(chunks) + sequences, tokens + sum(decodes))))
    prior_us = np.array([prior.predict(chunks, decodes) for chunks, decodes, _ in batches]) * 1e6
    expected = given.predicted_us(prior_us, np.array([each for *_, each in batches], float))

    assert [made.predict(chunks, decodes) * 1e6 for chunks, decodes, _ in batches] == pytest.approx(expected.tolist())
    assert len({round(each, 3) for each in given.weights(counts.astype(float))}) > 3


def test_the_zone_reaches_a_factor_of_four_beyond_what_was_measured():
    assert axis_knots(np.array([0.0, 20.0, 70.0])).tolist() == [0, 5, 10, 20, 40, 70, 140, 280]
    assert axis_knots(np.array([0.0, 0.0])).tolist() == [0, 1, 2]
    counts = np.array([[0.0, 4.0, 1000.0]])
    zone = table(zone=zone_of(counts))

    at = np.array([[0, 4, 1000], [0, 8, 1000], [0, 16, 1000], [0, 12, 1000], [0, 2, 1000], [0, 8, 2000], [1, 4, 1000]])
    assert zone.weights(at.astype(float)) == pytest.approx([1.0, 0.5, 0.0, 0.25, 0.5, 0.0, 0.5])


def test_runs_with_and_without_fast_forward_are_the_same_and_say_what_was_not_measured(server):
    file, name = server
    keys = name(scale=1.3, constant_us=50.0, zone=zone_of(np.array([
        [0.0, sequences, tokens] for sequences in (1.0, 2.0) for tokens in (100.0, 200.0, 400.0, 800.0)])))
    runs = [simulator.run(file, keys | {"engine.fast_forward": each}) for each in (True, False)]
    plain = simulator.run(file)

    assert (runs[0].requests == runs[1].requests).all()
    facts = [run.summary["latency"]["residual"] for run in runs]
    assert facts[0] == facts[1] and facts[0]["measured"] + facts[0]["partly"] + facts[0]["beyond"] == len(
        runs[1].iterations)
    assert facts[0]["measured"] and facts[0]["partly"]
    assert runs[0].summary["tpot_ms"]["mean"] > plain.summary["tpot_ms"]["mean"]
    (note,) = [each for each in runs[0].summary["diagnosis"] if "latency.residual" in each]
    assert "lay outside the measured ones of steps.json" in note
    assert not any("residual" in each for each in plain.summary["diagnosis"])


def test_pipeline_stages_share_it(server):
    file, _ = server
    keys = {"topology.pipeline_parallel": 2}
    prior = prior_of(load_experiment(file, keys).all_pools()[0])
    write_table(file.with_name("steps.json"), table(prior=prior, scale=2.0))
    plain, twice = (latency_model(Site(load_experiment(file, keys | more).all_pools()[0])) for more in (
        {}, {"latency.residual": str(file.with_name("steps.json"))}))

    assert twice.predict_stages_ns([(100, 0)]) == [2 * each for each in plain.predict_stages_ns([(100, 0)])]


def test_another_latency_model_below_it_is_refused_and_another_server_is_told(server, capsys):
    file, name = server
    keys = name()
    with pytest.raises(InputErrors, match=r"fitted on top of another latency model: latency.base_us = 1000.0 there, "
                                          r"1200.0 here"):
        simulator.run(file, keys | {"latency.base_us": 1200.0})

    found = simulator.run(file, keys | {"engine.scheduler": "sarathi"}).summary["diagnosis"]
    assert any("measured on another server: engine.scheduler = 'vllm' there, 'sarathi' here" in each for each in found)


@pytest.mark.parametrize(("change", "fault"), [
    ({"scale": -1.0}, "Expected `float` >= 0"),
    ({"format": "steps"}, "Invalid enum value 'steps'"),
    ({"curves": [{"knots": [0, 1], "added_us": [2, 1]}] * 3}, "curve of prefill_tokens: expected ascending knots, and"),
    ({"curves": [{"knots": [0, 1], "added_us": [0, 1, 2]}] * 3}, "curve of prefill_tokens: 2 knots, 3 times"),
    ({"zone": {"knots": [[0, 1]] * 3, "weights": [1]}}, "zone: expected ascending knots and 8 weights, found 1")])
def test_a_wrong_file_is_refused_with_its_fault(tmp_path, change, fault):
    path = tmp_path / "steps.json"
    path.write_text(json.dumps(msgspec.to_builtins(table()) | change))
    with pytest.raises(InputErrors, match="not a residual of `simulator calibrate`: ") as raised:
        read_table(str(path))
    assert fault in str(raised.value)


def test_a_missing_or_cut_file_is_a_fault_of_the_key(server, capsys):
    file, name = server
    path = file.with_name("steps.json")

    assert cli.main([str(file), "--set", f"latency.residual={path}"]) == 2
    assert "latency.residual: " in (said := capsys.readouterr().err) and "No such file" in said
    name()
    path.write_bytes(path.read_bytes()[:100])
    assert cli.main([str(file), "--set", f"latency.residual={path}"]) == 2
    assert "not a residual of `simulator calibrate`: Input data was truncated" in capsys.readouterr().err


@pytest.mark.parametrize(("scope", "iteration_us", "outermost"), [
    ("iteration", 0.0, Residual), ("forward", 600.0, Graphs)])
def test_times_of_iterations_have_the_host_in_them_and_those_of_kernels_have_not(
        server, scope, iteration_us, outermost):
    file, _ = server
    keys = {"latency.host.defaults": "vllm", "engine.async_scheduling": False, "engine.cuda_graphs.mode": "full",
            "engine.cuda_graphs.capture_sizes": [1, 8]}
    prior = prior_of(load_experiment(file, keys).all_pools()[0])
    write_table(file.with_name("steps.json"), table(prior=prior, scope=scope, scale=2.0))
    site = Site(load_experiment(file, keys | {"latency.residual": str(file.with_name("steps.json"))}).all_pools()[0])
    made = latency_model(site)

    assert host_times(site, made).iteration_us == iteration_us      # vLLM's synchronous host, host_defaults.py
    assert type(made) is outermost
    # a decode of one: 1,000 + 10 + 1 x 0.01 us, twice
    assert made.predict([], [1]) == pytest.approx(2 * 1010.01e-6)
