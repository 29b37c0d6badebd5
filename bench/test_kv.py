"""The event loop with real block tables, prefix caching and preemptions, against the lower bound on the same lengths.

The bound knows no blocks and shares nothing: it says what the requests alone cost.
"""
import time

import pytest
from cases import Case, Prepared

pytestmark = pytest.mark.benchmark(group="KV cache", timer=time.process_time)

SHARED = {"rate_per_s": 16.0, "system_prompts": (8, 512)}
CASES = {       # name: rounds, case, whether blocks run out
    "block tables, 100k requests on 1 replica": (9, Case(num_gpu_blocks=12_000), False),
    "KV pressure, 100k requests on 1 replica": (9, Case(num_gpu_blocks=6500), True),
    "KV pressure, 1M requests on 64 replicas": (5, Case(1_000_000, 64, num_gpu_blocks=6500), True),
    "KV pressure, 1M requests on 512 replicas": (5, Case(1_000_000, 512, num_gpu_blocks=6500), True),
    "system prompts, 100k requests on 1 replica": (9, Case(num_gpu_blocks=8000, **SHARED), False),
    "system prompts, KV pressure, 100k requests on 1 replica": (9, Case(num_gpu_blocks=3500, **SHARED), True),
}


@pytest.mark.parametrize("name", CASES)
def test_event_loop_with_block_tables(name, pairs, limit, report, tmp_path):
    rounds, case, is_under_pressure = CASES[name]
    prepared = Prepared(case)

    pair, _ = pairs.against_limit(limit, prepared, tmp_path / "trace.csv", rounds)

    prepared.means_ms()
    assert (prepared.total("preemptions") > 0) == is_under_pressure
    assert (prepared.total("prefix_hit_tokens") > 0) == bool(case.system_prompts[0])
    preempted = (prepared.workload.requests["preemptions"] > 0).mean()
    report.add(name, f"{pair.ratio:.1f} x limit", "<= 15 x",
               f"{pair}; {prepared.total('iterations'):,} iterations, {preempted:.1%} of requests preempted")
