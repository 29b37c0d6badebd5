"""Experiments in memory with their clusters, and differences between two results."""
import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from simulator.api import Order, run_ordered
from simulator.assembly import assemble
from simulator.config.layers import Layers, Source
from simulator.config.load import resolve
from simulator.testing.checks import Fault, Seen, faults_of, table_of
from simulator.testing.contract import expect, verify

TABLES = ("requests", "iterations", "replicas", "token_times", "replica_samples", "decisions", "candidates",
          "lifecycle", "legs", "kv_tiers", "encode_jobs", "sampled_requests")
LINEAR = {"latency": {"backend": "linear"}, "output": {"token_times": True}}
ENGINE = {"num_gpu_blocks": 60, "max_num_seqs": 8, "max_num_batched_tokens": 128, "max_model_len": 400}
SESSIONS = {
    "type": "sessions", "num_sessions": 12, "arrival": {"process": "poisson", "rate_per_s": 20.0},
    "sessions": {"rounds": {"distribution": "uniform", "min": 1, "max": 4},
                 "new_tokens": {"distribution": "uniform", "min": 1, "max": 60},
                 "output_tokens": {"distribution": "uniform", "min": 1, "max": 20}}}


def drawn(rate_per_s: float, most: int, count: int = 40) -> dict:
    """Return a synthetic workload with prompts and outputs of up to `most` tokens."""
    lengths = {"distribution": "uniform", "min": 1, "max": most}
    return {"type": "synthetic", "num_requests": count, "arrival": {"process": "poisson", "rate_per_s": rate_per_s},
            "prompt_tokens": lengths, "output_tokens": lengths}


# Light load, load beyond the KV cache, tokens one by one, conversations with a shared beginning.
WORKLOADS = {"light": drawn(2.0, 100), "burst": drawn(1000.0, 190), "single tokens": drawn(200.0, 1),
             "sessions": SESSIONS}


def experiment_of(workload: str, changes: Mapping[str, Any] = ()):
    """Return an experiment with one of `WORKLOADS`.

    changes : dotted key -> value, or a table to update; None in it: without that key.
    """
    data = copy.deepcopy(LINEAR | {"name": "contract", "seed": 5, "engine": ENGINE, "workload": WORKLOADS[workload]})
    for key, value in dict(changes).items():
        table, (*path, last) = data, key.split(".")
        for name in path:
            table = table.setdefault(name, {})
        table[last] = table.get(last, {}) | value if isinstance(value, dict) else value
        if isinstance(value, dict):
            table[last] = {name: inner for name, inner in table[last].items() if inner is not None}
    layers = Layers(Source("experiment", ""))
    layers.merge(data, Source("experiment", ""))
    return resolve(layers)


def run_seen(experiment, threads: int = 1) -> Seen:
    """Run an experiment in memory; return the result with its cluster."""
    kept = []

    def build(prepared, *rest):
        kept[:] = [assemble.build(prepared, *rest), prepared.workload]
        return kept[0]

    result = run_ordered(Order(experiment, None, False, True, threads=threads, build=build))
    return Seen(result, *kept, experiment)


def holds_in_a_cluster(name: str, changes: Mapping[str, Any]) -> None:
    """Check whole experiments with a class that `changes` chooses."""
    verify(name, (runs_hold_together, runs_repeat, fast_forward_changes_nothing), changes)


def runs_hold_together(changes):
    """No request is lost, early or served twice; all blocks are free at the end."""
    for workload in WORKLOADS:
        seen = run_seen(experiment_of(workload, changes))
        faults = faults_of(seen)
        expect(not faults, f"{workload}: {faults[:1]}")


def runs_repeat(changes):
    """An experiment that is run twice gives equal results."""
    first, second = (run_seen(experiment_of("burst", changes)).result for _ in range(2))
    expect(not differences(first, second), str(differences(first, second)[:1]))


def fast_forward_changes_nothing(changes):
    """Results with fast-forward equal those without."""
    for workload in WORKLOADS:
        first, second = (run_seen(experiment_of(workload, {**changes, "engine.fast_forward": value})).result
                         for value in (True, False))
        expect(not differences(first, second), f"{workload}: {differences(first, second)[:1]}")


def differences(first, second) -> list[Fault]:
    """Return the tables, columns and numbers in which two results differ."""
    found = []
    for name in TABLES:
        one, two = table_of(first, name), table_of(second, name)
        if (one is None) != (two is None):
            found.append((name, "one has the table, one has not"))
        elif one is not None:
            found += _unlike(name, one, two)
    found += list(_unequal("summary", first.summary, second.summary))
    return found


def _unlike(name: str, one, two) -> list[Fault]:
    if isinstance(one, tuple):
        return [fault for place, pair in enumerate(zip(one, two, strict=True))
                for fault in _unlike(f"{name}[{place}]", *pair)]
    if len(one) != len(two):
        return [(name, f"{len(one)} rows and {len(two)}")]
    columns = one.dtype.names or (None,)
    for column in columns:
        left, right = (one, two) if column is None else (one[column], two[column])
        if left.tobytes() != right.tobytes():
            row = int(np.flatnonzero(left != right)[0]) if (left != right).any() else -1
            return [(f"{name}.{column}", f"row {row}: {left[row]} and {right[row]}")]
    return []


def _unequal(path: str, one: Any, two: Any):
    if isinstance(one, dict) and isinstance(two, dict):
        for key in one.keys() | two.keys():
            yield from _unequal(f"{path}.{key}", one.get(key), two.get(key))
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for left, right in zip(one, two, strict=True):
            yield from _unequal(path, left, right)
    elif one != two and not (isinstance(one, float) and isinstance(two, float) and math.isnan(one) and math.isnan(two)):
        yield path, f"{one!r} and {two!r}"
