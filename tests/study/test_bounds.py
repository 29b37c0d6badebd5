"""Bounds of operators: no price of the roofline lies below its bound, in any configuration."""
from pathlib import Path

import pytest

import simulator
from simulator.config.load import load_experiment
from simulator.study.predict import predict_batch

CONFIGS = Path(__file__).parents[2] / "configs"
BATCHES = [([], [1024] * 64), ([], [1]), ([(2048, 2048)], [300] * 100)]


EXPERIMENTS = [path.stem for path in sorted(CONFIGS.glob("*.toml"))
               if not path.stem.startswith("compare_") and "[study]" not in path.read_text()]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_price_of_the_roofline_lies_below_its_bound(name):
    for pool in load_experiment(CONFIGS / f"{name}.toml").all_pools():
        is_priced = pool.latency.backend == "roofline" and pool.model and pool.hardware
        for batch in BATCHES if is_priced else ():
            found = predict_batch(pool, *batch)
            assert found.bounds
            assert {operator: (bound.seconds, found.breakdown[operator]) for operator, bound in found.bounds.items()
                    if found.breakdown.get(operator) and bound.seconds > found.breakdown[operator] * 1.0001} == {}


def test_ranks_that_share_contexts_share_their_bound():
    # each of the ranks reads its part of the same 64 contexts
    config = CONFIGS / "context_parallel.toml"
    degree = load_experiment(config).topology.decode_context_parallel
    alone, shared = (simulator.predict(config, decode=[1024] * 64, overrides={
        "topology.decode_context_parallel": ways}).bounds["decode_attention"] for ways in (1, degree))
    assert degree > 1 and shared.bytes_s == pytest.approx(alone.bytes_s / degree, rel=5e-3)


def test_links_of_a_collective_model_set_no_bound():
    found = simulator.predict(CONFIGS / "simai_analytical.toml", decode=[1024] * 64)
    assert found.breakdown["collectives"] > 0 and found.bounds["collectives"].seconds == 0


def test_another_backend_has_the_gather_of_logits_apart():
    # 64 rows of 128,256 logits, 10 bytes each, at 3.35 TB/s; the roofline's price has their gather over NVLink as well
    given = {"topology.tensor_parallel": 2}
    tabled = given | {"latency.backend": "linear", "latency.base_us": 1.0, "latency.per_sequence_us": 0.0,
                      "latency.per_prefill_token_us": 0.0, "latency.per_context_token_us": 0.0}
    roofline, other = (simulator.predict(CONFIGS / "quickstart.toml", decode=[1024] * 64, overrides=each)
                       .bounds["sampler"] for each in (given, tabled))
    assert other.seconds == pytest.approx(64 * 128_256 * 10 / 3.35e12) and other.by == "bytes"
    assert roofline.seconds > 1.1 * other.seconds
