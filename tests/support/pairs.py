"""Features that an experiment may use, each with the settings that use it, to be tried in pairs."""
import copy
from itertools import combinations

import simulator
from simulator.config import conflicts
from simulator.errors import InputErrors
from support.every_key import put, read
from support.pages import ROOT

PROFILES = ROOT / "configs/data"
ROOFLINE = {"latency": {"backend": "roofline"}}
MIXTURE = {"model.name": "qwen3-30b-a3b"}
WINDOWS = [{"kind": "full_attention"}, {"kind": "sliding_attention", "window": 48}]
STATES = [{"kind": "full_attention"}, {"kind": "linear_attention"}]
LINKS = {"d2h_gb_per_s": 50.0, "h2d_gb_per_s": 50.0, "kv_bytes_per_token": 1e5}
MOVES = {"bandwidth_gb_per_s": 10.0, "kv_bytes_per_token": 1e3}
ROLES = [{"name": "p", "role": "prefill"}, {"name": "d", "role": "decode"}]
MIGRATION = {"policy": "rebalance", "interval_s": 0.02} | MOVES
ENCODER = {"us_per_embedding": 10.0}
IMAGES = {"rule": "tokens_per_image", "tokens_per_image": 20, "count": {"distribution": "uniform", "min": 0, "max": 1}}
AGENTS = {"workload": {
    "type": "sessions", "num_sessions": 4, "arrival": {"process": "poisson", "rate_per_s": 100.0},
    "sessions": {"rounds": {"distribution": "constant", "value": 4}, "think_time_s": 0.05,
                 "new_tokens": {"distribution": "uniform", "min": 10, "max": 50},
                 "output_tokens": {"distribution": "uniform", "min": 1, "max": 20}}}}
FEATURES = {
    "KV tiers": {"kv_tiers": {"protocol": "vllm_offload", "cpu_gib": 1.0} | LINKS},
    "tiers of lmcache": {"kv_tiers": {"protocol": "lmcache", "cpu_gib": 1.0} | LINKS},
    "shared tiers": {"kv_tiers": {"protocol": "vllm_offload", "cpu_gib": 1.0, "secondary": [
        {"name": "store", "scope": "cluster"}]} | LINKS},
    "tiers of BLIS": {"engine.scheduler": "blis", "engine.upstream_compat": True, "kv_tiers": {
        "protocol": "blis_mirror", "cpu_blocks": 60}},
    "tiers of SGLang": {"engine.scheduler": "sglang", "kv_tiers": {"protocol": "hicache"} | LINKS},
    "routers that look at tiers": {"cluster.routing.policy": "kvaware"},
    "pipeline stages": {"topology.pipeline_parallel": 2},
    "independent ranks": {"topology.data_parallel": 2},
    "ranks in lock step": MIXTURE | {"topology.data_parallel": 2},
    "decode context parallelism": {"topology.tensor_parallel": 16, "topology.decode_context_parallel": 2},
    "prefill context parallelism": {"topology.prefill_context_parallel": 2},
    "expert placement": MIXTURE | ROOFLINE | {"engine.experts": {"popularity": {"distribution": "zipf", "s": 1.0}}},
    "loads of experts that change": MIXTURE | ROOFLINE | {"engine.experts": {
        "popularity": {"distribution": "zipf", "s": 1.0, "drift_steps": 10}}},
    "drafts": {"engine.speculative": {"num_tokens": 2, "acceptance": {"rates": [0.8, 0.5]}}},
    "draft models": ROOFLINE | {"model.name": "qwen3-32b", "engine.speculative": {
        "method": "draft_model", "model": "qwen3-0.6b", "num_tokens": 2, "acceptance": {"rates": [0.8, 0.5]}}},
    "drafts of SGLang": {"engine.scheduler": "sglang", "engine.speculative": {
        "method": "eagle", "num_steps": 2, "drafter_share": 0.1, "acceptance": {"rates": [0.8, 0.5]}}},
    "LoRA": {"engine.lora": {"max_loras": 2}, "workload.adapters": {"names": ["a", "b", "c"], "none_share": 0.2}},
    "LoRA of SGLang": {"engine.scheduler": "sglang", "engine.lora": {"max_loras_per_batch": 2},
                       "workload.adapters": {"names": ["a", "b", "c"], "none_share": 0.2}},
    "structured outputs of SGLang": {"engine.scheduler": "sglang", "engine.structured_outputs": {"fraction": 0.5}},
    "structured outputs": {"engine.structured_outputs": {"fraction": 0.5}},
    "images": {"engine.encoder": ENCODER, "workload.images": IMAGES},
    "encode pools": {"pools": [{"name": "e", "role": "encode", "engine": {"encoder": ENCODER}}],
                     "embeddings": {"bandwidth_gb_per_s": 25.0, "bytes_per_embedding": 8192.0},
                     "workload.images": IMAGES},
    "CUDA graphs": {"engine.cuda_graphs": {"mode": "full"}},
    "windows": {"engine.kv_cache_groups": WINDOWS},
    "recurrent states": {"engine.kv_cache_groups": STATES},
    "models with windows": {"model.name": "gemma-3-4b"},
    "models with recurrent states": {"model.name": "qwen3-next-80b-a3b"},
    "hits inside blocks": {"engine.kv_cache_groups": STATES, "engine.prefix_match_unit": 8},
    "no prefix caching": {"engine.enable_prefix_caching": False},
    "asynchronous scheduling": {"engine.async_scheduling": True},
    "no fast-forward": {"engine.fast_forward": False},
    "vLLM 0.10": {"engine.vllm_version": "0.10"},
    "whole prompts": {"engine.enable_chunked_prefill": False, "engine.max_num_batched_tokens": 512},
    **{f"scheduler {name}": {"engine.scheduler": name} for name in (
        "blis", "orca", "sarathi", "sglang", "tensorrt_llm", "vllm_v0")},
    "prefill and decode by nixl": {"pools": ROLES, "kv_transfer": {"protocol": "nixl"} | MOVES},
    "prefill and decode by mooncake": {"pools": ROLES, "kv_transfer": {"protocol": "mooncake"} | MOVES},
    "prefill and decode of SGLang": {"pools": ROLES, "engine.scheduler": "sglang", "kv_transfer": {
        "protocol": "sglang", "num_reserved_decode_tokens": 16} | MOVES},
    "prefill and decode of BLIS": {"pools": ROLES, "engine.scheduler": "blis", "kv_transfer": {
        "protocol": "blis"} | MOVES},
    "prefill and decode of Vidur": {"pools": ROLES, "engine.scheduler": "orca", "kv_transfer": {
        "protocol": "simai"} | MOVES},
    "adaptive prefill and decode": {
        "pools": ROLES, "kv_transfer": {"protocol": "nixl"} | MOVES, "cluster.disaggregation": {
            "stage_order": "prefill_first"}, "cluster.routing": {
            "policy": "llumnix", "scheduling_policy": "slo", "enable_adaptive_pd": True,
            "ttft_profiling_data_path": f"{PROFILES}/prefills.json",
            "tpot_profiling_data_path": f"{PROFILES}/decodes.json"}},
    "choice of the requests to split": {"pools": ROLES, "kv_transfer": {"protocol": "nixl"} | MOVES,
                                        "cluster.disaggregation": {"decider": "never"}},
    "live migration": {"cluster.rescheduling": MIGRATION | {"mode": "live"}},
    "migration by recomputation": {"cluster.rescheduling": MIGRATION | {"mode": "recompute"}},
    "autoscaling": {"autoscaling": {"policy": "queue", "target_waiting": 1.0, "interval_s": 0.03, "max_replicas": 3}},
    "replicas that stop": {"failures": [{"kind": "stop", "at_s": 0.05, "duration_s": 0.1, "which": 0}]},
    "replicas that slow down": {"failures": [{"kind": "slow", "at_s": 0.05, "duration_s": 0.1, "which": 0}]},
    "links that fail": {"failures": [{"kind": "link", "at_s": 0.05, "duration_s": 0.1, "which": 0}]},
    "backend roofline": ROOFLINE,
    "backend step_roofline": {"latency": {"backend": "step_roofline"}},
    "backend blackbox": {"latency": {"backend": "blackbox", "beta": [5000.0, 20.0, 15.0]}},
    "collective models": {"latency": {"backend": "roofline", "collective": {"backend": "busbw"}}},
    "router llumnix": {"cluster.routing.policy": "llumnix"},
    "gateway queue": {"cluster.gateway_queue": {"tick_s": 1e-3, "saturation": {
        "detector": "concurrency", "max_concurrency": 2}}},
    "regions": {"cluster.regions": {
        "names": ["a", "b"], "replicas": [1, 1], "latency_ms": [[0.0, 20.0], [30.0, 0.0]], "spill_at": 2.0}},
    "programs of agents": {"cluster.programs": {"scheduler_interval_s": 0.02, "buffer_per_program": 500}} | AGENTS,
    "KV held for programs": {"engine.kv_retention": {"policy": "predicted"}} | AGENTS,
    "closed loop": {"workload.load": {"mode": "concurrency", "concurrency": 4}},
    "prices and power": {"prices": {"h100-sxm-80gb": {
        "per_gpu_hour": 2.0, "currency": "USD", "source": "made up", "date": "2026-01-01"}},
        "power": {"h100-sxm-80gb": {
            "idle_w": 100.0, "prefill_w": 600.0, "decode_w": 400.0, "source": "made up"}}},
    "all tables": {"output": {"token_times": True, "replica_samples_s": 0.01, "decisions": 2}},
}


def base():
    """Return an experiment of two replicas, as plain data."""
    return {
        "topology": {"replicas": 2}, "model": {"name": "llama-3.1-8b"}, "hardware": {"name": "h100-sxm-80gb"},
        "engine": {"num_gpu_blocks": 200, "block_size": 16, "max_model_len": 300},
        "latency": {"backend": "linear", "base_us": 5000.0, "per_prefill_token_us": 20.0},
        "workload": {"type": "synthetic", "num_requests": 16,
                     "arrival": {"process": "poisson", "rate_per_s": 100.0},
                     "prompt_tokens": {"distribution": "uniform", "min": 1, "max": 120},
                     "output_tokens": {"distribution": "uniform", "min": 1, "max": 40}},
    }


def pairs():
    """Yield the pairs of features that no key keeps apart: where both set one, it is to the same value."""
    for one, two in combinations(FEATURES, 2):
        first, second = FEATURES[one], FEATURES[two]
        if all(key == "pools" or _overlay(first, key) in (None, value) for key, value in second.items()) and all(
                key == "pools" or _overlay(second, key) in (None, value) for key, value in first.items()) and not (
                    {"pools"} <= first.keys() & second.keys() and "encode pools" not in (one, two)):
            yield one, two


def _overlay(settings, key):
    """Return what settings say of a key, of a table in it, or of a table around it."""
    for other, value in settings.items():
        if other == key or other.startswith(f"{key}.") or key.startswith(f"{other}."):
            return value
    return None


def outcome(heard, *features):
    """Return (the refusals of an experiment that uses features, those that rows of the table made).

    None instead of refusals: it ran to the end. heard : a Listening.
    """
    faults, made = refusal(heard, *(FEATURES[name] for name in features))
    if isinstance(faults, tuple):
        return faults, made
    counts = faults.summary["requests"]
    served = counts["injected"] if any("failures" in FEATURES[name] for name in features) else counts["completed"]
    assert faults.summary["complete"], (features, faults.summary["diagnosis"])
    assert served == 16, (features, counts)
    return None, []


def refusal(heard, *settings):
    """Return (the refusals of an experiment with settings, those that rows made), or (the Result, [])."""
    data, pools = base(), []
    for key, value in (item for each in settings for item in each.items()):
        if key == "pools":
            pools += value
        elif key == "latency":
            data["latency"] = copy.deepcopy(value)
        else:
            put(data, key, value)
    if pools:
        whole = [{"name": "serve"}] if all(pool["role"] == "encode" for pool in pools if "role" in pool) and all(
            "role" in pool for pool in pools) else []
        data["pools"] = copy.deepcopy(pools + whole)
        del data["topology"]["replicas"]
    heard.messages.clear()
    try:
        result = simulator.run(read(data))
    except InputErrors as errors:
        return errors.faults, [fault for fault in errors.faults if fault.endswith(tuple(heard.messages))]
    return result, []


class Listening:
    """Within it, the messages and the rows that refuse something are kept."""

    def __enter__(self):
        self._plain, self.messages, self.rows = conflicts.Conflict.faults, [], set()

        def faults(row, places):
            for path, message in self._plain(row, places):
                self.messages.append(message)
                self.rows.add(row)
                yield path, message

        conflicts.Conflict.faults = faults
        return self

    def __exit__(self, *exception):
        conflicts.Conflict.faults = self._plain
