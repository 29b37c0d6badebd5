"""Results directories of small runs, and iterations, whose numbers are worked by hand; see fakes.py."""
import json

import numpy as np

from results.fakes import MS, bounds_of, replicas_of, small_run
from results.test_hdf5 import write
from simulator.domain import records
from simulator.results.lanes import Lanes
from simulator.results.metrics import SCHEMA, summarise
from simulator.results.ranked import in_passes
from simulator.results.request_passes import Requests, Sample

RESOLVED = """name = "small"
[engine]
max_num_seqs = 2
max_num_batched_tokens = 64
[slo]
ttft_ms = 20.0
"""
PROVENANCE = {"version": "9.9", "git_revision": None, "python": "3.x", "numpy": "2", "finished_at": "now"}


def lay_down(folder, run=None, resolved=RESOLVED, bounds=None, **output):
    """Write a run as `run` would; return the directory."""
    run = run or small_run()
    write(folder, run, **output)
    summary = {"schema": SCHEMA, "name": "small", "seed": 7, **summarise(run, bounds or bounds_of(ttft_ms=20.0))}
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "resolved.toml").write_text(resolved)
    (folder / "provenance.json").write_text(json.dumps(PROVENANCE))
    return folder


def iterations_of(*rows):
    """Return iterations; a row is (replica, begin, duration in ms, prefill, decode, waiting, running, used blocks)."""
    table = np.zeros(len(rows), records.ITERATION)
    for record, (replica, begin_ms, took_ms, *counts) in zip(table, rows, strict=True):
        record["replica"], record["start_ns"] = replica, begin_ms * MS
        record["begin_ns"], record["duration_ns"] = begin_ms * MS, took_ms * MS
        names = ("prefill_tokens", "decode_tokens", "waiting", "running", "used_blocks")
        for name, count in zip(names, counts, strict=True):
            record[name] = count
        record["sequences"] = record["running"]
    return table


# replica 0 computes from 10 to 20, 20 to 30 and 40 to 50 ms; replica 1 from 15 to 25 ms
ITERATIONS = iterations_of((0, 10, 10, 64, 0, 1, 2, 99), (1, 15, 10, 8, 0, 0, 1, 10), (0, 20, 10, 0, 2, 1, 2, 99),
                           (0, 40, 10, 10, 1, 0, 1, 30))
REPLICAS = replicas_of({"num_blocks": 100}, {"num_blocks": 100})


def blocks_of(table, names, size=None):
    """Return columns of a table in blocks of so many rows; None: all at once."""
    size = size or max(len(table), 1)
    return [{name: table[name][first:first + size] for name in names if name in table.dtype.names}
            for first in range(0, len(table), size)]


def lanes_of(iterations, replicas=REPLICAS, size=None, **options):
    """Return what is found in iterations that come in blocks of so many rows."""
    return Lanes(lambda names: blocks_of(iterations, names, size), replicas, **options)


def counted(table, until_ns=0, size=None, **bounds):
    """Return what is found in requests, likewise."""
    return Requests(lambda: blocks_of(table, table.dtype.names, size), bounds, until_ns)


def sample_of(values, bound_ms=None):
    """Return a latency of these values."""
    sample = Sample(bound_ms)
    in_passes(lambda: [np.asarray(values, float)], sample)
    return sample
