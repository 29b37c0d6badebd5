"""Keys that act on nothing in a run, and requests that no key acts on, are named in the diagnosis."""
import pytest

import simulator

EXPERIMENT = """
topology = {replicas = 2}
engine = {num_gpu_blocks = 1000, max_model_len = 512, max_num_seqs = 4}
latency = {backend = "linear", base_us = 20000, per_sequence_us = 0, per_prefill_token_us = 0, per_context_token_us = 0}
workload = {type = "trace", path = "t.csv"}
"""
MOVES = {"policy": "rebalance", "kv_bytes_per_token": 1e5, "bandwidth_gb_per_s": 10.0}
SCALES = {"policy": "schedule", "max_replicas": 4}
POOLS = [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 1}]
LORA = {"max_loras": 2}
ADAPTERS = {"names": ["x"], "none_share": 0.0}


def diagnosis(folder, keys):
    """Return the diagnosis of a run of 8 requests that come within 7 ms and take 0.1 s each; it takes 0.141 s."""
    (folder / "a.toml").write_text(EXPERIMENT)
    (folder / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens,tenant,slo_class\n" + "".join(
        f"{0.001 * i:.3f},10,5,t{i % 2},gold\n" for i in range(8)))
    return simulator.run(folder / "a.toml", keys).summary["diagnosis"]


def failure(at_s, **more):
    return {"failures": [{"kind": "slow", "at_s": at_s} | more]}


@pytest.mark.parametrize(("keys", "text"), [
    (failure(0.2), "failures[0] with at_s = 0.2 did not happen before the end of the run"),
    (failure(0.1), None),
    ({"failures": [{"kind": "slow", "mtbf_s": 1e6, "which": "each"}]},
     "failures[0] with mtbf_s = 1e+06 did not happen before the end of the run"),
    (failure(0.05, which=3) | {"autoscaling": SCALES | {"changes": [{"at_s": 0.1, "replicas": 3}]}},
     "failures[0] with at_s = 0.05 had no effect: no replica that it may hit served then, or all had failed already"),
    ({"restarts": [{"at_s": 3.0, "loading_delay": {"mean_s": 1.0}}]},
     "restarts[0].at_s = 3: the run ended after 0.141 s, before the restart"),
    ({"autoscaling": SCALES | {"changes": [{"at_s": 0.1, "replicas": 3}, {"at_s": 5.0, "replicas": 4}]}},
     "autoscaling.changes[1].at_s = 5: the run ended after 0.141 s, before the order"),
    ({"cluster.rescheduling": MOVES | {"interval_s": 9.0}},
     'cluster.rescheduling.interval_s = 9: the run ended after 0.141 s, before the first plan of policy = "rebalance"'),
    ({"cluster.rescheduling": MOVES | {"interval_s": 0.05}}, None),
    ({"output.replica_samples_s": 2.0},
     "output.replica_samples_s = 2: the run ended after 0.141 s, before a second sample"),
    ({"output.replica_samples_s": 0.1}, None)])
def test_instants_beyond_the_end_are_named(tmp_path, keys, text):
    found = [note for note in diagnosis(tmp_path, keys) if "before " in note or "no effect" in note]

    assert found == ([text] if text else [])


@pytest.mark.parametrize(("keys", "text"), [
    ({"slo.classes": [{"name": "gold"}, {"name": "silver", "ttft_ms": 5.0}]},
     "[[slo.classes]]: no request is of silver"),
    ({"slo.classes": [{"name": "gold", "ttft_ms": 5.0}]}, None),
    ({"cluster.admission": {"policy": "tenant_budgets", "budgets": [
        {"tenant": "t1", "share": 1.0}, {"tenant": "t2", "share": 0.5}]}},
     "cluster.admission.budgets: no request is of t2"),
    ({"engine.scheduler": "edf"},
     'engine.scheduler = "edf" has no effect: no request has a deadline, and default_deadline_ms is not given'),
    ({"engine.scheduler": "edf", "engine.default_deadline_ms": 5.0}, None),
    ({"engine.lora": LORA}, "engine.lora has no effect: no request has an adapter"),
    ({"engine.lora": LORA, "workload.adapters": ADAPTERS}, None),
    ({"workload.adapters": ADAPTERS}, "8 requests have a LoRA adapter: replicas without engine.lora neither load "
                                      "adapters nor take longer for them"),
    ({"pools": [POOLS[0] | {"engine": {"lora": LORA}}, POOLS[1]], "workload.adapters": ADAPTERS},
     "8 requests have a LoRA adapter: replicas of pool b without engine.lora neither load adapters nor take longer for "
     "them"),
    ({"pools": [POOLS[0] | {"cost_per_hour": 3.0}, POOLS[1]]},
     "cost: replicas of pool b cost nothing: neither cost_per_hour nor [prices] has their price, so that costs are "
     "those of the other pools alone"),
    ({"pools": [each | {"cost_per_hour": 3.0} for each in POOLS]}, None)])
def test_keys_that_no_request_meets_are_named(tmp_path, keys, text):
    assert diagnosis(tmp_path, keys) == ([text] if text else [])


@pytest.mark.parametrize(("keys", "key"), [
    ({"engine.policy": "priority"}, 'engine.policy = "priority"'),
    ({"engine.scheduler": "sglang", "engine.enable_priority_scheduling": True}, "engine.enable_priority_scheduling")])
def test_priorities_that_are_all_alike_are_named(tmp_path, keys, key):
    (tmp_path / "b.toml").write_text(EXPERIMENT)
    for second, named in ((0, [f"{key} has no effect: all requests have one priority"]), (1, [])):
        (tmp_path / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens,priority\n"
                                        f"0.0,10,5,0\n0.0,10,5,{second}\n")
        assert simulator.run(tmp_path / "b.toml", keys).summary["diagnosis"] == named


@pytest.mark.parametrize(("interval_s", "rejected"), [(0.3, 4), (0.2, 6)])
def test_requests_without_a_replica_are_named_though_most_are_served(tmp_path, interval_s, rejected):
    (tmp_path / "a.toml").write_text(EXPERIMENT)
    (tmp_path / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,10,1\n" + "".join(
        f"{0.05 * i + 0.01:.3f},10,1\n" for i in range(1, 10)))
    summary = simulator.run(tmp_path / "a.toml", {"topology.replicas": 1, "autoscaling": {
        "policy": "queue", "min_replicas": 0, "max_replicas": 2, "interval_s": interval_s}}).summary

    served, scaled = summary["diagnosis"]       # the first decision finds nothing that waits
    assert f"{rejected} rejected since no replica could take them" in served
    assert f"requests that came while no replica served were refused, {rejected} in all" in scaled
