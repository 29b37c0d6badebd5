"""Replicas that do not see each other, simulated apart, are the run of one piece."""
import pickle
from pathlib import Path

import pytest

from simulator.assembly import assemble, split_run
from simulator.config.load import load_experiment
from simulator.errors import InputErrors
from simulator.results.memory import MemoryRecorder
from simulator.results.summary import json_text, summary_of

CONFIGS = Path(__file__).parents[1] / "configs"
SMALL = {"workload.num_requests": 300, "topology.replicas": 5, "workload.arrival.rate_per_s": 50.0}


def prepared_of(name="quickstart", **overrides):
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    return assemble.prepare(load_experiment(CONFIGS / f"{name}.toml", SMALL | dotted))


def in_one_piece(prepared):
    sink = MemoryRecorder(prepared.experiment.output, prepared.workload, streams=prepared.streams)
    return finished(prepared.experiment, sink, assemble.build(prepared, sink).run())


def in_parts(prepared, count):
    sink = MemoryRecorder(prepared.experiment.output, prepared.workload, streams=prepared.streams)
    done = [pickle.loads(pickle.dumps(split_run.serve(pickle.loads(pickle.dumps(task)))))      # as they travel
            for task in split_run.tasks_of(prepared, sink, count)]
    return finished(prepared.experiment, sink, split_run.joined(reversed(done), prepared, sink))


def finished(experiment, sink, run):
    """Return all that results are made of, as bytes and text."""
    tables = sink.finish(run)
    told = [tables.table(name).tobytes() for name in ("requests", "replicas", "iterations")]
    if experiment.output.token_times:
        told += [part.tobytes() for part in tables.token_times()]
    if "kv_tiers" in run.tables:
        told.append(tables.table("kv_tiers").tobytes())
    summary = summary_of(run, experiment.name, experiment.seed, experiment.slo, assemble.pools_of(experiment), None)
    return json_text(summary), told


@pytest.mark.parametrize("count", [2, 3, 5, 9])
def test_parts_are_the_run_of_one_piece(count):
    assert in_parts(prepared_of(), count) == in_one_piece(prepared_of())


@pytest.mark.parametrize(("name", "overrides"), [
    ("quickstart", {"output__token_times": True, "engine__num_gpu_blocks": 200, "engine__max_model_len": 3000}),
    ("quickstart", {"horizon_s": 3.0}),
    ("speculative", {}),
    ("lora", {}),
    ("shared_prompts", {"kv_tiers": {"cpu_gib": 0.5}, "engine__num_gpu_blocks": 300, "engine__max_model_len": 4000}),
    ("pipeline", {}),
    ("structured_outputs", {}),
    ("windows", {"engine__scheduler": "vllm"}),
    ("quickstart", {"engine__scheduler": "sarathi"})],
    ids=["tokens_and_preemptions", "horizon", "drafts", "adapters", "host_tier", "stages", "grammars", "windows",
         "sarathi"])
def test_what_a_run_tells_is_that_of_its_parts(name, overrides):
    prepared = prepared_of(name, **overrides)
    assert in_parts(prepared, 3) == in_one_piece(prepared_of(name, **overrides))


@pytest.mark.parametrize(("overrides", "reason"), [
    ({"topology__replicas": 1}, "it has one replica"),
    ({"cluster__routing__policy": "least_loaded"},
     "its replicas see each other, or something looks at them while they run"),
    ({"output__decisions": 3}, "[output] asks for decisions and candidates"),
    ({"latency__collective": {"backend": "busbw"}, "topology__tensor_parallel": 2, "topology__node": "dgx-h100"},
     "the latency backend of pool default keeps account of what it was asked")])
def test_one_piece_is_not_cut(overrides, reason):
    prepared = prepared_of(**overrides)
    sink = MemoryRecorder(prepared.experiment.output, prepared.workload, streams=prepared.streams)
    with pytest.raises(InputErrors) as refused:
        split_run.tasks_of(prepared, sink, 2)
    assert list(refused.value.faults) == [f"quickstart: cannot be cut into parts: {reason}"]
