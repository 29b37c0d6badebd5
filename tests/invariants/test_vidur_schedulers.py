"""Vidur's replica schedulers: fast-forward changes nothing, nothing is lost, whatever happens to the cluster."""
import json
from dataclasses import replace
from random import Random

import numpy as np
import pytest

import simulator
from invariants.test_invariants import assert_identical
from invariants.test_pipeline_conservation import requests_of
from invariants.test_whole_cluster import experiment_of
from simulator.domain import records
from simulator.registry import load
from support import engine
from support.blis_scenarios import long_scenario

WATERMARK = "watermark_blocks_fraction"
RESERVATIONS = ("max_model_len", "max_tokens", "expected_tokens", "expected_tokens")
KEYS = {
    "sarathi": lambda rng: {"chunk_size": rng.choice([5, 16, 64, 512]), WATERMARK: rng.choice([0.0, 0.01, 0.2])},
    "faster_transformer": lambda rng: {"reservation": rng.choice(RESERVATIONS)},
    "lightllm": lambda rng: {"max_tokens_in_batch": rng.choice([300, 1000]),
                             "max_waiting_iters": rng.choice([1, 3, 10])},
    "orca": lambda rng: {"reservation": rng.choice(RESERVATIONS)},
    "vllm_v0": lambda rng: {"max_tokens_in_batch": rng.choice([300, 1000, 4096]), WATERMARK: rng.choice([0.0, 0.2])},
}
WAYS = ({"fast_forward": False}, {"tracks_identity": True}, {"coupled": True},
        {"fast_forward": False, "tracks_identity": True})
ONLY_VLLM = ("engine.async_scheduling", "engine.speculative", "engine.max_num_seqs")


def keys_of(name, rng):
    """Return keys of [engine] for a scheduler."""
    return {"batch_size_cap": rng.choice([2, 4, 16, 128])} | KEYS[name](rng)


def run(name, seed, **options):
    """Return the recording of random traffic in which blocks run out."""
    scenario, replicas = long_scenario(seed)
    scheduler = load("scheduler", name)
    rng = Random(f"{name} {seed}")
    parameters = scheduler.Parameters(**keys_of(name, rng))
    if getattr(parameters, "reservation", None) == "expected_tokens":
        lengths, demands = scenario.workload.outcomes["output_tokens"].tolist(), scenario.workload.demands
        demands["expected_tokens"] = [rng.choice([-1, 1, 1, 1, 2 * length]) for length in lengths]
    return engine.run(replace(scenario, parameters=parameters), **(
        {"replicas": replicas, "scheduler": scheduler, "details": False} | options))


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("seed", range(15))
def test_every_way_is_the_same_run(name, seed):
    usual = run(name, seed)
    for way in WAYS:
        assert_identical(usual, run(name, seed, **way))


@pytest.mark.parametrize(("name", "restarts"), [
    ("sarathi", 100), ("vllm_v0", 100), ("orca", 50), ("faster_transformer", 3)])       # whose batches only shrink
def test_blocks_run_out_in_these_runs(name, restarts):
    assert sum(int(run(name, seed).requests["preemptions"].sum()) for seed in range(15)) > restarts


@pytest.mark.parametrize("name", sorted(KEYS.keys() - {"lightllm"}))    # which takes none
@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("seed", range(20, 26))
def test_with_pipeline_stages_everybody_is_served(name, stages, seed):
    recording = run(name, seed, layers=[4] * stages)
    requests = recording.requests

    assert set(requests["status"].tolist()) <= {records.COMPLETED, records.REJECTED, records.DROPPED,
                                                records.TIMED_OUT}
    assert_identical(recording, run(name, seed, layers=[4] * stages, fast_forward=False))


def experiment(name, seed, folder):
    """Write an experiment in which everything happens; return its path."""
    rng = Random(f"{name} {seed}")
    (folder / "requests.csv").write_text(requests_of(rng))
    keys = {"scheduler": name} | keys_of(name, rng)
    lines = [f"engine.{key} = {json.dumps(value)}" for key, value in keys.items()]
    lines += [line for line in experiment_of(rng).splitlines() if not line.startswith(ONLY_VLLM)]
    if name == "lightllm":
        lines = [line for line in lines if not line.startswith(("engine.num_gpu_blocks", "topology.pipeline"))]
        lines = ["engine.block_size = 1", f"engine.num_gpu_blocks = {rng.choice([240, 640])}", *lines]
    if name == "lightllm" or keys.get("reservation") == "expected_tokens":
        path = 'path = "requests.csv"'
        known = '"exact"' if name == "lightllm" else '"lognormal_error", error_sigma = 2.0'
        lines = [line.replace(path, f"{path}, output_knowledge = {{predictor = {known}}}") for line in lines]
    (folder / "experiment.toml").write_text("\n".join(lines))
    return folder / "experiment.toml"


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("seed", range(25))
def test_whole_clusters_lose_nobody_and_are_the_same_run(name, seed, tmp_path):
    path = experiment(name, seed, tmp_path)
    one, other = (simulator.run(path, {"engine.fast_forward": fast}) for fast in (True, False))

    np.testing.assert_array_equal(one.requests, other.requests)
    np.testing.assert_array_equal(one.lifecycle, other.lifecycle)
    assert one.summary["itl_ms"] == other.summary["itl_ms"]
    counts = dict(one.summary["requests"])
    counts.pop("length_capped")
    assert counts.pop("injected") == sum(counts.values())
