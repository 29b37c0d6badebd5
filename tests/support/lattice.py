"""Every scheduler with everything that a cluster may have: what runs, and what is refused.

`PYTHONPATH=tests:. python -m support.lattice` prints the table of simulator/scheduling/README.md.
"""
import copy
import tempfile
from pathlib import Path

from simulator import registry
from simulator.assembly import assemble
from simulator.domain import records
from simulator.errors import InputErrors
from simulator.results.memory import MemoryRecorder
from support.every_key import put, read

# split_wise goes with pools for prefill and decode alone: tests/engine/test_split_wise.py; the router is round_robin.
SCHEDULERS = sorted({*registry.KINDS["scheduler"].entries} - {"split_wise"})
ROUTERS = sorted({*registry.KINDS["router"].entries} - {"split_wise"})
RESCHEDULERS = sorted(registry.KINDS["rescheduler"].entries)

# What a scheduler needs besides its name, and what takes the place of names that it does not have.
OWN = {
    "lightllm": {"engine.block_size": 1, "engine.num_gpu_blocks": 960},
    "sglang": {"engine.disable_overlap_schedule": True},
    "vllm": {"engine.async_scheduling": False},
}
BY_LENGTHS = ("lightllm", "sjf_aging")
PROTOCOLS = {"blis": "blis", "faster_transformer": "simai", "orca": "simai", "sarathi": "simai", "sglang": "sglang"}
ADAPTERS = {"sglang": {"max_loras_per_batch": 2},
            "blis": {"adapter_capacity": 2, "load_base_latency_us": 2000.0, "load_bandwidth_bytes_us": 100.0,
                     "footprint_bytes_per_rank": 1e4, "adapters": [{"id": f"a{i}", "rank": 8} for i in range(3)]}}
ROUTER_KEYS = {"weighted": {"scorers": [{"name": "queue-depth", "weight": 1.0}]}}
# How the message tells of a feature that is refused.
TOLD_AS = {"prefill and decode": "what another replica has computed", "KV tiers": "kv_tiers",
           "pipeline stages": "topology.pipeline_parallel", "async scheduling": "engine.async_scheduling",
           "LoRA": "engine.lora", "structured outputs": "engine.structured_outputs", "drafts": "engine.speculative"}
ROLES = [{"name": "p", "role": "prefill"}, {"name": "d", "role": "decode"}]
IDLE = ("without engine.lora", "has no effect")     # notes on keys that the schedulers need not have


def base_of(scheduler, trace):
    """Return an experiment of two replicas, as plain data, in which blocks run out."""
    data = {
        "engine": {"scheduler": scheduler, "num_gpu_blocks": 60, "block_size": 16, "max_model_len": 300,
                   "enable_prefix_caching": False},
        "topology": {"replicas": 2}, "model": {"name": "llama-3.1-8b"}, "hardware": {"name": "h100-sxm-80gb"},
        "latency": {"backend": "linear", "base_us": 5000.0, "per_sequence_us": 10.0, "per_prefill_token_us": 20.0},
        "workload": {"type": "trace", "path": str(trace), "time_origin": "trace"},
    }
    for key, value in OWN.get(scheduler, {}).items():
        put(data, key, value)
    if scheduler in BY_LENGTHS:
        put(data, "workload.output_knowledge.predictor", "column")
    return data


def features_of(scheduler):
    """Return {feature: settings} of all that a scheduler is asked to go with."""
    drafts = {"num_tokens": 2}
    if scheduler == "sglang":
        drafts = {"method": "eagle", "num_steps": 2, "drafter_share": 0.1}
    handed_over = {"pools": ROLES, "topology": {}, "kv_transfer.bandwidth_gb_per_s": 40.0}
    if scheduler in PROTOCOLS:
        handed_over["kv_transfer.protocol"] = PROTOCOLS[scheduler]
    tiers = {"kv_tiers": {"protocol": "vllm_offload", "cpu_gib": 1.0}}
    if scheduler == "sglang":       # two answers of 512 tokens are all that these blocks hold
        handed_over["kv_transfer.num_reserved_decode_tokens"] = 16
        tiers = {"kv_tiers": {"protocol": "hicache", "d2h_gb_per_s": 50.0, "h2d_gb_per_s": 50.0},
                 "engine.enable_prefix_caching": True}
    if scheduler == "blis":         # a decode replica gets stuck where blocks run out
        handed_over["engine.num_gpu_blocks"] = 300
        tiers = {"kv_tiers": {"protocol": "blis_mirror", "cpu_blocks": 60}, "engine.upstream_compat": True,
                 "engine.enable_prefix_caching": True}
    overlap = ("engine.disable_overlap_schedule", False) if scheduler == "sglang" else ("engine.async_scheduling", True)
    return {
        "failures": {"failures": [{"kind": "stop", "at_s": 0.05, "duration_s": 0.1, "which": 0}]},
        "autoscaling pools": {
            "pools": [{"name": "a", "max_replicas": 3}, {"name": "b", "max_replicas": 2}], "topology": {},
            "autoscaling": {"policy": "queue", "target_waiting": 1.0, "interval_s": 0.03}},
        **{f"rescheduler {each}": {"cluster.rescheduling": {
            "policy": each, "interval_s": 0.02, "mode": "live", "kv_bytes_per_token": 1e5, "bandwidth_gb_per_s": 10.0}}
           for each in RESCHEDULERS},
        "prefill and decode": handed_over,
        "KV tiers": tiers,
        "pipeline stages": {"topology.pipeline_parallel": 2},
        "async scheduling": dict([overlap]),
        "prefix caching": {"engine.enable_prefix_caching": True},
        "LoRA": {"engine.lora": ADAPTERS.get(scheduler, {"max_loras": 2})},
        "structured outputs": {"engine.structured_outputs": {"fraction": 0.5, "compile_ms": 0.5}},
        "drafts": {"engine.speculative": drafts | {"acceptance": {"rates": [0.8, 0.5]}}},
        **{f"router {each}": {"cluster.routing": {"policy": each} | ROUTER_KEYS.get(each, {})} for each in ROUTERS},
    }


def write_trace(path):
    """Write 24 requests of three tenants, sessions and adapters, with shared beginnings."""
    lines = ["arrived_at,num_prefill_tokens,num_decode_tokens,prompt,tenant,session,adapter,predicted_tokens"]
    for i in range(24):
        own, output = 20 + 13 * i % 90, 1 + 7 * i % 60
        lines.append(f"{0.003 * i:.3f},{32 + own},{output},s{i % 3}:32/own{i}:{own},t{i % 3},u{i % 5},a{i % 3},"
                     f"{output}")
    path.write_text("\n".join(lines) + "\n")


def outcome(scheduler, settings, trace):
    """Return the faults for which an experiment is refused; None: it ran, and lost nothing."""
    data = base_of(scheduler, trace)
    for key, value in settings.items():
        put(data, key, copy.deepcopy(value))
    try:
        prepared = assemble.with_all_requests(assemble.prepare(read(data)))
    except InputErrors as error:
        return error.faults
    cluster = assemble.build(prepared, MemoryRecorder(prepared.experiment.output, prepared.workload))
    run = cluster.run()
    assert_nothing_is_lost(cluster, run)
    return None


def assert_nothing_is_lost(cluster, run):
    """Check that all requests are through, and all blocks free."""
    assert run.complete and not [note for note in run.diagnosis if not any(each in note for each in IDLE)]
    assert (run.workload.requests["status"] == records.COMPLETED).all()
    for replica in cluster.replicas:
        replica.check()
        assert replica.scheduler.kv.free_blocks + being_copied(replica.scheduler) == replica.scheduler.kv.num_blocks
        assert replica.scheduler.loading == replica.scheduler.waiting.size == 0


def being_copied(scheduler):
    """Return the blocks of a tree that are locked as long as they are copied to host memory."""
    if not getattr(scheduler.tier, "num_locked", 0):
        return 0
    return scheduler.kv.tokens_free[2] // scheduler.kv.block_size


def table(outcomes):
    """Return the lines of a table of {scheduler: {feature: faults or None}}; routers are one column."""
    columns = {}
    for features in outcomes.values():
        for feature in features:
            columns.setdefault(_column(feature), None)
    lines = ["| scheduler | " + " | ".join(columns) + " |", "|---|" + ":-:|" * len(columns)]
    for scheduler, features in outcomes.items():
        cells = []
        for column in columns:
            found = [faults for feature, faults in features.items() if _column(feature) == column]
            taken = sum(faults is None for faults in found)
            cells.append("yes" if taken == len(found) else "no" if taken == 0 else f"{taken} of {len(found)}")
        lines.append(f"| `{scheduler}` | " + " | ".join(cells) + " |")
    return lines


def _column(feature):
    kind = feature.split()[0]
    return {"router": "each router", "rescheduler": "each rescheduler"}.get(kind, feature)


def outcomes(trace):
    """Return {scheduler: {feature: faults or None}} of all."""
    write_trace(trace)
    return {scheduler: {feature: outcome(scheduler, settings, trace)
                        for feature, settings in features_of(scheduler).items()} for scheduler in SCHEDULERS}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print("\n".join(table(outcomes(Path(folder, "trace.csv")))))
