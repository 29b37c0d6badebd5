"""Two pools that differ in one key: whichever stands first in the file, each does the same."""
import sys

import pytest
import tomli_w

import simulator
from simulator import registry
from simulator.config.experiment import Pool
from simulator.config.fields import alternatives, bare, is_struct, table_of

# One value, not the default, of every key of [[pools]] with the default scheduler and backend, and what else the pool
# then needs. A key that is new belongs here.
VALUES = {
    "replicas": 2, "max_replicas": 3, "nodes_per_unit": 2, "cost_per_hour": 2.5,
    "model.name": "mistral-7b", "model.dtype": "fp8", "model.kv_cache_dtype": "fp8",
    "hardware.name": "a100-sxm-80gb",
    "topology.replicas": 2, "topology.tensor_parallel": 2, "topology.pipeline_parallel": 2, "topology.node": "dgx-h100",
    "topology.expert_parallel": {"topology.expert_parallel": 2, "topology.tensor_parallel": 2,
                                 "model.name": "mixtral-8x7b"},
    "engine.scheduler": "blis", "engine.max_model_len": 120, "engine.block_size": 32, "engine.num_gpu_blocks": 30,
    "engine.gpu_memory_utilization": 0.5, "engine.enable_prefix_caching": False, "engine.fast_forward": False,
    "engine.max_num_seqs": 2, "engine.max_num_batched_tokens": 64, "engine.max_num_scheduled_tokens": 100,
    "engine.max_num_active_seqs": 2, "engine.max_num_queued_reqs": 2, "engine.max_num_queued_tokens": 40,
    "engine.enable_chunked_prefill": False, "engine.long_prefill_token_threshold": 30,
    "engine.long_prefill_token_threshold_adaptive": {"engine.long_prefill_token_threshold": 30,
                                                     "engine.long_prefill_token_threshold_adaptive": True},
    "engine.policy": "priority", "engine.scheduler_reserve_full_isl": False, "engine.watermark": 0.5,
    "engine.async_scheduling": True, "engine.vllm_version": "0.10", "engine.lora.max_loras": 1,
    "engine.lora.step_factor": 1.5, "engine.lora.per_adapter_us": 500.0, "engine.lora.disk_gb_per_s": 0.5,
    "engine.lora.h2d_gb_per_s": 0.5, **{f"engine.lora.{key}": {
        "engine.lora.disk_gb_per_s": 0.5, "engine.lora.h2d_gb_per_s": 0.5, f"engine.lora.{key}": value}
       for key, value in (("rank", 64), ("adapter_mb", 10.0), ("max_cpu_loras", 1))},
    "engine.cuda_graphs.mode": "full", "engine.cuda_graphs.capture_sizes": [64], "engine.cuda_graphs.memory_gib": 9.0,
    "engine.cuda_graphs.piecewise_us_per_layer": 50.0, "engine.cuda_graphs.eager_us_per_layer": {
        "engine.cuda_graphs.mode": "none", "engine.cuda_graphs.eager_us_per_layer": 5000.0},

    **{f"engine.{key}": {"model.name": "gemma-3-4b", f"engine.{key}": value} for key, value in (
        ("language_model_only", True), ("skip_mm_profiling", True), ("limit_mm_per_prompt.image", 0),
        ("limit_mm_per_prompt.video", 1))},
    "engine.task": "pooling", "engine.kv_cache_memory_bytes": 10**9,
    "engine.speculative": {"num_tokens": 2, "acceptance": [1, 0, 2]},
    "engine.kv_cache_groups": {"engine.num_gpu_blocks": 100, "engine.kv_cache_groups": [
        {"kind": "full_attention"}, {"kind": "sliding_attention", "window": 50}]},
    "engine.disable_hybrid_kv_cache_manager": {"model.name": "gpt-oss-20b",
                                               "engine.disable_hybrid_kv_cache_manager": True},
    "engine.prefix_cache_retention_interval": {"model.name": "gpt-oss-20b",
                                               "engine.prefix_cache_retention_interval": "dense"},
    "engine.prefill_schedule_interval": {"engine.vllm_version": "0.33", "engine.prefill_schedule_interval": 4},
    "engine.prefix_match_unit": {
        "engine.prefix_match_unit": 1, "engine.num_gpu_blocks": 100,
        "engine.kv_cache_groups": [{"kind": "full_attention"}, {"kind": "linear_attention"}]},
    **{f"engine.experts.{key}": {
        "model.name": "gpt-oss-20b", "topology.tensor_parallel": 2, "topology.expert_parallel": 2,
        "engine.experts.popularity.distribution": "zipf", "engine.experts.popularity.s": 1.0,
        f"engine.experts.{key}": value} for key, value in (
            ("placement", "round_robin"), ("popularity.distribution", "zipf"), ("popularity.s", 0.5),
            ("popularity.drift_steps", 20), ("popularity.seed", 3), ("eplb.num_redundant_experts", 4),
            ("eplb.window_size", 5), ("eplb.step_interval", 12), ("eplb.use_async", False))},
    **{f"kv_tiers.{key}": {"engine.num_gpu_blocks": 40, "kv_tiers.cpu_gib": 0.2, f"kv_tiers.{key}": value}
       for key, value in (
           ("protocol", "vllm_offload"), ("cpu_gib", 0.1), ("blocks_per_chunk", 2), ("eviction_policy", "arc"),
           ("store_threshold", 2), ("offload_prompt_only", False), ("sync_load_budget_bytes", 2**20),
           ("d2h_gb_per_s", 3.0), ("h2d_gb_per_s", 3.0), ("first_byte_us", 500.0), ("contention", "fair"),
           ("kv_bytes_per_token", 5e4),
           ("secondary", [{"name": "nvme", "capacity_gib": 0.3}]))},
    "latency.backend": "linear", "latency.resolution_us": 500.0, "latency.time_factor": 2.0,
    "latency.host.front_end_us": 4000.0, "latency.host.front_end_per_prompt_token_us": 20.0,
    "latency.host.api_server_count": {"latency.host.front_end_us": 4000.0, "latency.host.api_server_count": 2},
    "latency.host.queue_base_us": 700.0, "latency.host.queue_per_prompt_token_us": 30.0,
    "latency.host.output_token_us": 9000.0, "latency.host.completion_us": 800.0, "latency.host.iteration_us": 900.0,
    "latency.host.sequence_us": 400.0, "latency.host.defaults": "vllm",
    "latency.host.output_token_accumulates": {"latency.host.output_token_us": 900.0,
                                              "latency.host.output_token_accumulates": True},
    "latency.collective.backend": {"latency.collective.backend": "busbw", "topology.tensor_parallel": 2,
                                   "topology.node": "dgx-h100"},
    "latency.efficiency": "shares", "latency.mfu_prefill": 0.2, "latency.mfu_decode": 0.2, "latency.mfu_attention": 0.1,
    "latency.bandwidth_efficiency": 0.3, "latency.kernel_latency_us": 30.0, "latency.attention_latency_us": 50.0,
    "latency.collective_latency_us": {"latency.collective_latency_us": 90.0, "topology.tensor_parallel": 2},
    "latency.link_efficiency": {"latency.link_efficiency": 0.1, "topology.tensor_parallel": 2},
}
ELSEWHERE = {
    "name": "results are told apart by it", "serves": "so are requests",
    "role": "as infer_type, its alias", "infer_type": "takes [kv_transfer]: tests/config/test_hand_over.py",
    "model.config": "instead of model.name",
    "context_range": "for a scorer alone: tests/support/every_key_sections.py",
    **dict.fromkeys(("weight", "rpm", "tpm"), "for some routers alone: tests/routing/test_proxy_routers.py"),
    "topology.data_parallel": "with experts: configs/deepseek_dp8.toml",
    "topology.pd_node_ratio": "instead of pools",
    "topology.prefill_context_parallel": "tests/latency/test_prompt_parallel.py",
    **{f"topology.{key}": "tests/latency/test_context_parallel.py" for key in (
        "decode_context_parallel", "cp_kv_cache_interleave_size", "dcp_comm_backend")},
    "engine.experts.popularity.file": "tests/experts/test_imbalance.py",
    **{f"engine.experts.{key}": "with data_parallel alone: tests/latency/test_uneven_experts.py" for key in (
        "all2all_backend", "dbo.enabled", "dbo.decode_token_threshold", "dbo.prefill_token_threshold", "dbo.comm_sms",
        "dbo.num_sms")},
    "latency.residual": "a file: tests/latency/test_residual.py",
    **{f"latency.{key}": "the same in all pools: tests/test_uncertainty.py" for key in (
        "uncertainty", "uncertainty_replications", "uncertainty_share")},
    "engine.allow_long_max_model_len": "of a model's own maximum",
    **{f"engine.encoder.{key}": "takes images: tests/support/every_key_policies.py" for key in (
        "us_per_embedding", "tokens_per_s", "cache_tokens", "max_num_encoder_input_tokens",
        "disable_chunked_mm_input")},
    **{f"engine.structured_outputs.{key}": "the same in all pools: tests/support/every_key_policies.py" for key in (
        "fraction", "num_grammars", "failing_fraction", "failing", "backend", "cpus", "draft_valid_rate", "kind",
        "size", "new_lengths", "max_length", "vocabulary", *(
            f"{time}{part}" for time in ("compile_ms", "mask_us") for part in (
                ".distribution", ".value", ".median", ".mean", ".values")))},
    **dict.fromkeys(("price_per_gpu_hour", "electricity_per_kwh", "carbon_g_per_kwh", "starts_at_hour"),
                    "beside tables of the experiment: tests/test_costs.py"),
    **{f"engine.kv_retention.{key}": "of sessions: tests/engine/test_kv_retention.py" for key in (
        "policy", "ttl_s", "max_share", "error_sigma")},
    **{f"engine.data_parallel.{key}": "of pools with ranks: tests/engine/test_ranks_in_experiments.py" for key in (
        "lockstep", "dp_sync_interval", "prefill_schedule_interval", "load_balancing", "stats_interval_s", "hop_us",
        "padding")},
}
BASE = {
    "model": {"name": "llama-3.1-8b"}, "hardware": {"name": "h100-sxm-80gb"},
    "engine": {"max_model_len": 400, "max_num_seqs": 4, "max_num_batched_tokens": 400},
    "workload": {"type": "trace", "path": "trace.csv"}, "output": {"iterations": True},
}
LAB = '''
import msgspec

from simulator.routing.python_router import PythonRouter

SEEN = []


class ByTenant(PythonRouter):
    """Requests of the n-th tenant to the n-th pool, by turns; writes down how many tokens of each are cached there."""

    uses_caches = True

    class Parameters(msgspec.Struct, frozen=True, kw_only=True):
        tenants: list[str]

    def choose(self, request, now_ns):
        pool = self.parameters.tenants.index(request.tenant)
        places = [i for i, each in enumerate(self.accounts) if each["pool"] == pool and each["is_routable"]]
        chosen = min(places, key=lambda i: (self.accounts["dispatched"][i], i))
        SEEN.append((request.row, self.cached_blocks(request, now_ns)[chosen], *self.states[chosen].tolist()))
        return chosen
'''


def keys_of(struct, prefix=""):
    """Return the keys of a table and of those in it; where one chooses a class by name, with the default's own."""
    table = table_of(struct)
    for field in table.fields:
        inner = next((bare(option) for option in alternatives(field.hint) if is_struct(option)), None)
        if inner is None or field.name == "speculative":
            yield prefix + field.name
        else:
            yield from keys_of(inner, f"{prefix}{field.name}.")
        if field.names_kind and isinstance(field.default, str):
            chosen = registry.parameters_of(registry.load(field.names_kind, field.default))
            yield from keys_of(chosen, prefix)


def test_every_key_of_a_pool_has_a_case():
    assert set(keys_of(Pool)) == VALUES.keys() | ELSEWHERE.keys()


def trace(label):
    """Return requests of a and b by turns: prompts that begin alike, priorities, adapters, and clients that give up."""
    lines = [f"arrived_at,num_prefill_tokens,num_decode_tokens,prompt,priority,adapter,deadline_s,{label}"]
    for i in range(48):
        shared, own, outputs = 32 * (i % 5), 1 + 13 * i % 90, 1 + 7 * (i // 2) % 23
        prompt = f"s{i % 3}:{shared}/:{own}" if shared else f":{own}"
        deadline_s = f"{0.02 + 0.01 * (i % 11):.2f}" if i % 7 in (1, 2) else "100"
        lines.append(f"{0.004 * (i // 2):.3f},{shared + own},{outputs},{prompt},{-(i % 3)},{('', 'x', '', 'y')[i % 4]},"
                     f"{deadline_s},{'ab'[i % 2]}")
    return "\n".join(lines) + "\n"


def nested(keys):
    """Return dotted keys as tables."""
    tables = {}
    for key, value in keys.items():
        *path, last = key.split(".")
        table = tables
        for name in path:
            table = table.setdefault(name, {})
        table[last] = value
    return tables


def outcome(result, names):
    """Return what a result says, told by names of pools instead of numbers of replicas."""
    pool_of = [replica["pool"] for replica in result.summary["replicas"]]
    number = [f"{pool} {pool_of[:i].count(pool)}" for i, pool in enumerate(pool_of)]
    requests, iterations = result.requests, result.iterations
    columns = [name for name in requests.dtype.names if name not in ("replica", "prefill_replica")]
    replicas = [number[i] if i >= 0 else "" for i in requests["replica"]]
    per_replica = {number[i]: iterations[[name for name in iterations.dtype.names if name != "replica"]][
        iterations["replica"] == i].tolist() for i in range(len(number))}
    summary = {key: value for key, value in result.summary.items() if key not in ("replicas", "diagnosis")}
    return {
        "requests": requests[columns].tolist(), "replicas": replicas, "iterations": per_replica,
        "summary": summary | {"by_pool": {name: summary["by_pool"][name] for name in names}},
        "diagnosis": sorted(result.summary["diagnosis"]),
        "each": {number[i]: {key: value for key, value in replica.items() if key != "replica"}
                 for i, replica in enumerate(result.summary["replicas"])}}


def both_orders(folder, monkeypatch, keys, label, **more):
    """Return the outcome of pools a and b, b with these keys, and that of b and a."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (folder / "trace.csv").write_text(trace(label))
    (folder / "order_lab.py").write_text(LAB)
    pools = [{"name": "a"}, {"name": "b"} | nested(keys)]
    if label == "model":
        pools = [pool | {"serves": pool["name"]} for pool in pools]
    found = []
    for ordered in (pools, pools[::-1]):
        sys.modules.pop("order_lab", None)
        names = [pool["name"] for pool in ordered]
        experiment = BASE | {"pools": ordered} | more
        if label == "tenant":
            experiment |= {"cluster": {"routing": {"policy": "order_lab:ByTenant", "tenants": names}}}
        (folder / "a.toml").write_text(tomli_w.dumps(experiment))
        served = outcome(simulator.run(folder / "a.toml"), "ab")
        found.append(served | {"seen": list(sys.modules["order_lab"].SEEN) if "order_lab" in sys.modules else []})
    return found


@pytest.mark.parametrize("label", ["model", "tenant"])
@pytest.mark.parametrize("key", VALUES)
def test_the_order_of_two_pools_that_differ_in_one_key_does_not_matter(tmp_path, monkeypatch, key, label):
    value = VALUES[key]
    keys = value if isinstance(value, dict) and key != "engine.speculative" else {key: value}

    one, other = both_orders(tmp_path, monkeypatch, keys, label)

    assert any(iterations for name, iterations in one["iterations"].items() if name.startswith("b"))
    for part in one:
        assert one[part] == other[part], part


@pytest.mark.parametrize("target", ["replica", "node", "unit"])
def test_the_order_of_pools_does_not_matter_to_what_fails(tmp_path, monkeypatch, target):
    failure = {"kind": "stop", "target": target, "which": "each", "mtbf_s": 0.05, "duration_s": 0.01}
    keys = {"replicas": 3, "nodes_per_unit": 2}

    one, other = both_orders(tmp_path, monkeypatch, keys, "model", failures=[failure], horizon_s=0.4)

    assert one["summary"]["retries"] > 0
    assert one == other


def test_the_order_of_pools_does_not_matter_to_who_draws(tmp_path, monkeypatch):
    one, other = both_orders(tmp_path, monkeypatch, {"replicas": 3}, "model",
                             cluster={"routing": {"policy": "random"}})

    assert len(set(one["replicas"])) == 4
    assert one == other
