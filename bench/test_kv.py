"""The event loop with prefix caching and preemptions, against the lower bound on the same lengths.

The bound has no blocks and shares nothing: it is the cost of the requests alone.
"""
import time
from dataclasses import replace

import pytest
from cases import UNLIMITED_BLOCKS, Case, Prepared
from pairs import cpu_s

pytestmark = pytest.mark.benchmark(group="KV cache", timer=time.process_time)

SHARED = {"rate_per_s": 16.0, "system_prompts": (8, 512)}
CASES = {       # name: rounds, case, whether blocks run out
    "prefix caching, 100k requests on 1 replica": (9, Case(num_gpu_blocks=12_000), False),
    "block tables for who looks at them, 100k requests on 1 replica": (
        9, Case(num_gpu_blocks=12_000, engine={"tracks_identity": True}), False),
    "KV pressure, 100k requests on 1 replica": (9, Case(num_gpu_blocks=6500), True),
    "KV pressure, 1M requests on 64 replicas": (5, Case(1_000_000, 64, num_gpu_blocks=6500), True),
    "KV pressure, 1M requests on 512 replicas": (5, Case(1_000_000, 512, num_gpu_blocks=6500), True),
    "system prompts, 100k requests on 1 replica": (9, Case(num_gpu_blocks=8000, **SHARED), False),
    "system prompts, KV pressure, 100k requests on 1 replica": (9, Case(num_gpu_blocks=3500, **SHARED), True),
}


@pytest.mark.parametrize("name", CASES)
def test_event_loop_with_prefix_caching(name, pairs, limit, report, tmp_path):
    rounds, case, is_under_pressure = CASES[name]
    prepared = Prepared(case)

    pair, _ = pairs.against_limit(limit, prepared, tmp_path / "trace.csv", rounds)

    prepared.means_ms()
    assert (prepared.total("preemptions") > 0) == is_under_pressure
    assert (prepared.total("prefix_hit_tokens") > 0) == bool(case.system_prompts[0])
    preempted = (prepared.workload.requests["preemptions"] > 0).mean()
    report.add(name, f"{pair.ratio:.1f} x limit", "<= 8 x",
               f"{pair}; {prepared.total('iterations'):,} iterations, {preempted:.1%} of requests preempted")


@pytest.mark.parametrize(("name", "num_gpu_blocks"), [("nobody is preempted", 12_000), ("5.8 % are", 6500)])
def test_prefix_caching_against_none(name, num_gpu_blocks, pairs, report):
    case = Case(num_gpu_blocks=num_gpu_blocks)
    plain, cached = Prepared(replace(case, num_gpu_blocks=UNLIMITED_BLOCKS)), Prepared(case)

    pair = pairs.against(lambda: cpu_s(plain.ready()), cached.ready, rounds=9)

    assert (cached.total("preemptions") > 0) == (num_gpu_blocks < 12_000)
    report.add(f"prefix caching, nothing shared, {name}", f"{pair.ratio:.2f} x without", "<= 1.5 x", str(pair))
