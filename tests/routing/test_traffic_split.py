"""Shares of the requests for pools, as for a canary."""
import numpy as np
import pytest
import tomli_w

import simulator
from simulator.domain.traffic_split import TrafficSplit
from simulator.errors import InputErrors

EXPERIMENT = {
    "pools": [{"name": "stable", "replicas": 2}, {"name": "canary", "replicas": 1, "latency": {"base_us": 9000.0}}],
    "cluster": {"traffic_split": {"pools": ["stable", "canary"], "weights": [3.0, 1.0]}},
    "engine": {"num_gpu_blocks": 600, "max_model_len": 512}, "latency": {"backend": "linear"}, "slo": {"ttft_ms": 50.0},
    "workload": {"type": "trace", "path": "requests.csv"}}


def run(folder, **split):
    """Run an experiment of 400 requests of 40 sessions, two for each of 20 tenants."""
    rows = [f"{i / 100},{20 + i % 50},4,s{i % 40},t{i % 20}" for i in range(400)]
    (folder / "requests.csv").write_text("\n".join(
        ["arrived_at,num_prefill_tokens,num_decode_tokens,session,tenant", *rows]) + "\n")
    (folder / "experiment.toml").write_text(tomli_w.dumps(EXPERIMENT | {
        "cluster": {"traffic_split": EXPERIMENT["cluster"]["traffic_split"] | split}}))
    return simulator.run(folder / "experiment.toml")


def test_pools_get_their_share_and_their_routers_use_all_replicas(tmp_path):
    result = run(tmp_path)
    counts = np.bincount(result.requests["replica"], minlength=3)

    assert counts[2] == pytest.approx(100, abs=3 * (400 * 0.25 * 0.75) ** 0.5)      # 100 of 400 are expected
    assert counts[0] > 0 and counts[1] > 0
    assert [result.summary["by_model"][name]["requests"]["completed"] for name in ("stable", "canary")] == [
        counts[0] + counts[1], counts[2]]


def test_the_latencies_of_each_pool_are_in_the_summary(tmp_path):
    result = run(tmp_path)
    requests, pools = result.requests, result.summary["by_pool"]

    for name, own in (("stable", requests["replica"] < 2), ("canary", requests["replica"] == 2)):
        ttft_ms = (requests["first_token_ns"] - requests["arrival_ns"])[own] / 1e6
        assert pools[name]["ttft_ms"]["mean"] == pytest.approx(ttft_ms.mean())
        assert pools[name]["slo_attainment"] == pytest.approx((ttft_ms <= 50).mean())
        assert pools[name]["not_completed"] == 0
    assert pools["canary"]["ttft_ms"]["mean"] > pools["stable"]["ttft_ms"]["mean"]


@pytest.mark.parametrize("by", ["session", "tenant"])
def test_a_unit_stays_with_its_pool(tmp_path, by):
    result = run(tmp_path, by=by)
    is_canary, units = result.requests["replica"] == 2, np.arange(400) % (40 if by == "session" else 20)

    for unit in np.unique(units):
        assert len(set(is_canary[units == unit].tolist())) == 1
    assert 0 < is_canary.sum() < 400


def test_a_pool_without_a_weight_gets_nothing(tmp_path):
    assert (run(tmp_path, weights=[1.0, 0.0]).requests["replica"] < 2).all()


@pytest.mark.parametrize(("keys", "message"), [
    ({"weights": [1.0]}, "weights: expected 2, one for each of pools, found 1"),
    ({"weights": [0.0, 0.0]}, "weights: expected a positive one"),
    ({"pools": ["a", "a"]}, "pools: a name is there twice")])
def test_shares_that_cannot_be_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        TrafficSplit(**{"pools": ("a", "b"), "weights": (1.0, 1.0)} | keys)


def test_a_name_of_no_pool_is_refused(tmp_path):
    with pytest.raises(InputErrors, match='there is no pool "canry"; did you mean canary'):
        run(tmp_path, pools=["stable", "canry"])


def test_units_that_no_request_has_are_refused(tmp_path):
    split = EXPERIMENT["cluster"]["traffic_split"] | {"by": "tenant"}
    workload = {"type": "synthetic", "num_requests": 3, "arrival": {"process": "constant", "rate_per_s": 1.0},
                "prompt_tokens": {"distribution": "constant", "tokens": 9},
                "output_tokens": {"distribution": "constant", "tokens": 9}}
    (tmp_path / "experiment.toml").write_text(tomli_w.dumps(
        EXPERIMENT | {"cluster": {"traffic_split": split}, "workload": workload}))
    with pytest.raises(InputErrors, match="no request has a tenant"):
        simulator.run(tmp_path / "experiment.toml")
