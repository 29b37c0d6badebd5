"""The event loop against the lower bound: batching alone, unlimited KV memory, nothing shared."""
import time

import pytest
from cases import Case, Prepared

pytestmark = pytest.mark.benchmark(group="event loop", timer=time.process_time)

CASES = {       # rounds, case
    "100k requests on 1 replica": (15, Case()),
    "100k requests on 1 replica, light load": (9, Case(rate_per_s=2.0)),
    "1M requests on 64 replicas": (5, Case(num_requests=1_000_000, replicas=64)),
    "1M requests on 512 replicas": (5, Case(num_requests=1_000_000, replicas=512)),
}


@pytest.mark.parametrize("name", CASES)
def test_event_loop_against_the_lower_bound(name, pairs, limit, report, tmp_path):
    rounds, case = CASES[name]
    prepared = Prepared(case)

    pair, bound = pairs.against_limit(limit, prepared, tmp_path / "trace.csv", rounds)

    assert prepared.total("iterations") == bound.iterations
    mean_ttft_ms, mean_e2el_ms = prepared.means_ms()
    assert mean_ttft_ms == pytest.approx(bound.mean_ttft_ms, rel=1e-9)
    assert mean_e2el_ms == pytest.approx(bound.mean_e2el_ms, rel=1e-9)
    report.add(name, f"{pair.ratio:.2f} x limit", "<= 5 x", f"{pair}; {bound.iterations:,} iterations")
