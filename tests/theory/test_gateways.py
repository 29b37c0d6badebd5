"""Gateways of whole experiments against what their rules promise in the long run."""
import numpy as np
import pytest

import simulator
from simulator.domain import records
from support.engine import TEN_MS

BASE = TEN_MS.replace("num_gpu_blocks = 100", "num_gpu_blocks = 10_000, max_num_seqs = 4")


def serve(folder, more, rows, columns=""):
    lines = ["arrived_at,num_prefill_tokens,num_decode_tokens" + columns, *rows]
    (folder / "trace.csv").write_text("\n".join(lines) + "\n")
    (folder / "a.toml").write_text(BASE + more)
    return simulator.run(folder / "a.toml")


@pytest.mark.parametrize("offered", [0.5, 2.0, 10.0])
def test_a_token_bucket_lets_its_rate_pass_and_no_more(tmp_path, offered):
    # 1,000 tokens/s and a burst of 500: of Poisson arrivals of 50 tokens, as many times as much as that for 100 s, it
    # lets nearly all pass that its rate allows, and never more than burst + rate x time.
    draws = np.random.default_rng(3)
    times_s = np.cumsum(draws.exponential(50 / (offered * 1000), int(2000 * offered)))
    bucket = '[cluster.admission]\npolicy = "token_bucket"\ncapacity_tokens = 500.0\nrefill_tokens_per_s = 1000.0\n'
    result = serve(tmp_path, bucket, [f"{time_s:.6f},50,1" for time_s in times_s])
    is_in = result.requests["status"] == records.COMPLETED
    passed = 50 * np.cumsum(is_in)
    assert (passed <= 500 + 1000 * times_s + 1e-3).all()
    rate = passed[-1] / times_s[-1]
    assert rate == pytest.approx(1000 * min(offered, 1.0), rel=0.05)


def bursts():
    """Return rows of tenants a, b, c, who ask for 120, 60 and 20 requests a second for 20 s."""
    rows = []
    for i in range(4000):
        rows.append(f"{i * 0.005:.3f},10,10,{'aaaaaabbbc'[i % 10]}")
    return rows


@pytest.mark.parametrize(("fairness", "shares"), [("round_robin", [1 / 3] * 3), ("none", [0.6, 0.3, 0.1])])
def test_tenants_that_all_ask_for_more_than_their_share_get_equal_ones_in_turns_alone(tmp_path, fairness, shares):
    # Four requests at a time, of ten iterations and the one in which they come: 4 / 110 ms. A third of that is 12 a
    # second, less than any tenant asks for, and what each gets in turn; in order of arrival it gets what it asks for.
    queue = ("[cluster.gateway_queue]\norder = 'fifo'\ndispatch = 'departures'\n"
             f"fairness = '{fairness}'\nsaturation = {{detector = 'concurrency', max_concurrency = 4}}\n")
    result = serve(tmp_path, queue, bursts(), ",tenant")
    requests, tenants = result.requests, np.array(list("aaaaaabbbc") * 400)
    served = (requests["completed_ns"] > 0) & (requests["completed_ns"] < 20e9)
    counts = np.array([(served & (tenants == tenant)).sum() for tenant in "abc"])
    assert counts.sum() == pytest.approx(20 * 4 / 0.11, rel=0.01)
    assert counts / counts.sum() == pytest.approx(shares, abs=0.01)
    jain = counts.sum()**2 / (3 * (counts**2).sum())
    assert (jain > 0.999) == (fairness == "round_robin")
