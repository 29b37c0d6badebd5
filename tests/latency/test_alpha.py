"""The alphas of BLIS: the last one is part of each gap between tokens, and of no iteration."""
import pytest
import tomli

import simulator
from simulator.config.load import load_experiment, resolved_toml

BASE = """
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
engine = {num_gpu_blocks = 1000, max_model_len = 1000}
topology = {tensor_parallel = 1}
latency = {backend = "blackbox"}
workload = {type = "trace", path = "trace.csv"}
"""
ALPHA_MS = {"blackbox": 3.3574400350329152, "trained_physics": 0.045907545, "crossmodel": 0.8606}
OWN = {"latency__backend": "blackbox", "latency__beta": [5000.0, 0.0, 0.0]}
LINEAR = {"latency__backend": "linear", "latency__base_us": 5000.0, "latency__per_sequence_us": 0.0,
          "latency__per_context_token_us": 0.0, "latency__host__output_token_us": 50.0}
GIVEN = OWN | {"latency__host__output_token_us": 50.0}


@pytest.fixture
def run(tmp_path):
    """Return a function that runs one request of 10 tokens with settings."""
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,100,10\n")
    (tmp_path / "e.toml").write_text(BASE)

    def run(**settings):
        return simulator.run(tmp_path / "e.toml", out=tmp_path / "out", overrides={
            key.replace("__", "."): value for key, value in settings.items()})

    return run


@pytest.mark.parametrize("scheduler", ["vllm", "blis"])
@pytest.mark.parametrize("backend", ALPHA_MS)
def test_a_gap_is_a_step_and_the_last_alpha(run, backend, scheduler):
    found = run(latency__backend=backend, engine__scheduler=scheduler)

    # the first of ten tokens comes with the prompt, nine with the steps behind it, each seen later by its alpha
    gap_ms = found.iterations["duration_ns"][1:].mean() / 1e6 + ALPHA_MS[backend]
    told, request = found.summary, found.requests[0]
    assert [told[name]["mean"] for name in ("tpot_ms", "itl_ms")] == pytest.approx(2 * [gap_ms], abs=1e-5)
    assert request["completed_ns"] - request["first_token_ns"] >= 9e6 * gap_ms - 10
    assert told["latency"]["host"]["output_token_accumulates"] is True


def test_llama_on_one_h100_as_published(run):
    # 5752.705 + 6.0 us a step of one sequence, and 3357.440 us a token beside it
    assert run().summary["tpot_ms"]["mean"] == pytest.approx(9.116, abs=1e-3)


@pytest.mark.parametrize(("settings", "gap_ms"), [
    (OWN, 5.0), (OWN | {"latency__alpha": [0.0, 0.0, 50.0]}, 5.05), (GIVEN, 5.0),
    (GIVEN | {"engine__scheduler": "blis"}, 5.05),
    (GIVEN | {"engine__scheduler": "blis", "latency__host__output_token_accumulates": False}, 5.0),
    (GIVEN | {"latency__host__output_token_accumulates": True}, 5.05),
    (OWN | {"latency__alpha": [0.0, 0.0, 50.0], "latency__host__output_token_accumulates": False}, 5.0),
    (LINEAR, 5.0), (LINEAR | {"engine__scheduler": "blis"}, 5.05)])
def test_whose_delay_of_a_token_adds_up(run, settings, gap_ms):
    assert run(**settings).summary["tpot_ms"]["mean"] == pytest.approx(gap_ms)


def test_the_resolved_experiment_says_what_acts(tmp_path):
    (tmp_path / "e.toml").write_text(BASE)
    for settings, adds_up in (({}, True), ({"latency": {"backend": "roofline"}}, False)):
        told = tomli.loads(resolved_toml(load_experiment(tmp_path / "e.toml", settings)))
        assert told["latency"]["host"]["output_token_accumulates"] is adds_up
