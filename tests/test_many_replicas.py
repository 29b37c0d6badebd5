"""What a replica takes in memory: nearly nothing while it is idle, its blocks as far as they were ever used."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import simulator

ROOT = Path(simulator.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
# getrusage counts what a process had before it called exec, a copy of its parent: a small parent stands between.
BETWEEN = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
CHILD = """
import json, resource, sys
import simulator

def peak_bytes():
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak

def run(file, replicas, requests, options):
    overrides = {"topology.replicas": replicas, "workload.num_requests": requests, "output.iterations": False}
    return simulator.run(file, overrides={**overrides, **options})

file, replicas, requests, options = json.loads(sys.argv[1])
run(file, 1, requests, options)
before = peak_bytes()
found = run(file, replicas, requests, options)
assert found.summary["requests"]["completed"] == requests
print((peak_bytes() - before) / replicas)
"""


def bytes_per_replica(replicas, requests, **options):
    """Return by how much a run of a fresh process raises its peak, a replica; each has 28,000 blocks and a cache."""
    given = json.dumps([str(ROOT / "configs" / "shared_prompts.toml"), replicas, requests, options])
    command = [sys.executable, "-c", BETWEEN, sys.executable, "-c", CHILD, given]
    return float(subprocess.check_output(command, env=ENVIRONMENT, text=True))


def test_an_idle_replica_takes_nearly_nothing():
    # 2.6 KB on Linux with glibc, 1.9 KB of them Python objects; other allocators round up otherwise. Records of all
    # blocks were 1,000 KB; plans and batches of a replica that never ran, 26 KB.
    assert bytes_per_replica(5_000, 5) < 6_000


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("router", ["round_robin", "session", "cache_aware", "weighted"])
def test_routers_keep_little_of_each_replica(router):
    # `session` has a ring of 160 points of 16 bytes for each; 24 bytes of each state count hits of the prefix cache,
    # and 32 steps of tiers in lock step. It takes 9,549 bytes on a quiet machine, 20 more beside other work.
    assert bytes_per_replica(20_000, 5, **{"cluster.routing.policy": router}) < 9_580


@pytest.mark.slow
def test_a_replica_takes_what_its_requests_fill():
    # One request each, of some 2,400 tokens or 153 blocks: 256 records of 32 bytes and their buckets are 9 KB, plans of
    # 256 to 1024 iterations 12 KB at most, slots and batch 3 KB, the request itself 0.3 KB.
    assert bytes_per_replica(3_000, 3_000) < 50_000
