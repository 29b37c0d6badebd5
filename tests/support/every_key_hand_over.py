"""As every_key_sections.py, for pools whose prompts are computed apart and what comes with them."""
from support.every_key import ABSENT, acts

POOLS = [{"name": "p", "role": "prefill"}, {"name": "d", "role": "decode", "replicas": 2}]
NODES = {"hardware__name": "h100-sxm-80gb", "topology__node": "dgx-h100", "model__name": "llama-3.1-8b",
         "engine__max_model_len": 512}
APART = {"pools": POOLS, "engine__async_scheduling": False, "kv_transfer": {
    "bandwidth_gb_per_s": 0.01, "kv_bytes_per_token": 1e3}}
FIRST = APART | {"pools": [POOLS[0] | {"replicas": 2}, POOLS[1]]}       # there is a choice of prefill replicas
OF_MODEL = NODES | {"pools": [POOLS[0] | {"topology": {"tensor_parallel": 2}}, POOLS[1]],
                    "engine__async_scheduling": False}
SLOW_MODEL = OF_MODEL | {"kv_transfer": {"kv_bytes_per_token": 1e7}}


def transfer(**keys):
    """Return the settings of pools that are apart, with keys of [kv_transfer]."""
    return APART | {"kv_transfer": APART["kv_transfer"] | keys}


CHUNKS = transfer(protocol="sglang") | {"engine__max_num_batched_tokens": 64, "engine__max_num_seqs": 8}
LATE = transfer(answer_hop_us=90_000.0)         # beyond a short lease
KV_TRANSFER = {
    "protocol": acts("nixl", "sglang", **APART),
    "first_token": acts("recompute", "prefill", **APART),
    "granularity": acts("prompt", "chunk", **CHUNKS),
    "volume": acts("missing", "full_prompt", **APART),
    "base_us": acts(0.0, 9000.0, **APART),
    "bandwidth_gb_per_s": acts(0.01, 0.02, **APART),
    "efficiency": acts(0.5, 0.9, **SLOW_MODEL),
    "nics_per_transfer": acts("rank", "all", **SLOW_MODEL),
    "contention": acts("fair", "none", **APART),
    "lease_s": acts(30.0, 0.01, **LATE),
    "heartbeats": acts(True, False, **APART | {"kv_transfer": APART["kv_transfer"] | {"lease_s": 0.01}}),
    "failure_policy": acts("fail", "recompute", **LATE | {"kv_transfer": LATE["kv_transfer"] | {"lease_s": 0.01}}),
    "handshake_ms": acts(0.0, 30.0, **APART),
    "answer_hop_us": acts(0.0, 7000.0, **APART),
    "notice_us": acts(0.0, 90_000.0, **APART | {"engine__num_gpu_blocks": 40}),
    "noticed_at": acts("end", "start", **APART),
    "num_reserved_decode_tokens": acts(0, 3000, **transfer(protocol="sglang") | {"engine__num_gpu_blocks": 240}),
    "kv_bytes_per_token": acts(1e3, 3e3, **APART),
    "upstream_compat": acts(False, True, **transfer(protocol="simai")),
}
ROLES = {
    "pools[].role": acts("prefill", "both", **APART),
    "topology.pd_node_ratio": acts(0.34, 0.67, **{key: value for key, value in APART.items() if key != "pools"}),
    "pools[].infer_type": acts("prefill", "neutral", **APART | {"pools": [{"name": "p"}, POOLS[1]]}),
}
WEIGHTED = {"policy": "weighted", "scorers": [{"name": "queue-depth", "weight": 2.0},
                                              {"name": "precise-prefix-cache", "weight": 3.0}]}


def _routing(leg):
    """Return the cases of the router of one leg."""
    table, base = f"cluster.disaggregation.{leg}", FIRST
    settings = f"cluster__disaggregation__{leg}"
    weighted = base | {settings: WEIGHTED}
    return {f"{table}.{key}": case for key, case in {
        "policy": acts("round_robin", "least_loaded", **base),
        "like": acts(ABSENT, "llm-d-default", **base),
        "filters[].name": acts("session-affinity", "utilization-detector", **weighted | {
            settings: WEIGHTED | {"filters": [{}]}}),
        "scorers[].name": acts("queue-depth", "kv-utilization", **weighted),
        "scorers[].weight": acts(0.1, 90.0, **weighted),
        "snapshot_refresh_interval_s": acts(0.0, 9.0, **weighted),
        "cache_signal_delay_s": acts(0.0, 9.0, **weighted, output__decisions=3),
        "latency_s": acts(0.0, 0.02, **base | {"cluster__disaggregation__stage_order": "prefill_first"}),
    }.items()}


DISAGGREGATION = {
    "cluster.disaggregation.decider": acts("always", "never", **APART),
    "cluster.disaggregation.stage_order": acts("decode_first", "prefill_first", **APART | {
        "cluster__routing__policy": "least_loaded"}),
    **_routing("prefill"), **_routing("decode"),
    "decider:prefix_threshold.non_cached_tokens": acts(0, 64, **APART),
    "decider:prefix_threshold.prompt_tokens": acts(0, 120, **APART),
    "decider:isl_bounding.eff_isl_threshold": acts(50, 2048, **APART | {
        "cluster__disaggregation__eff_isl_ratio_threshold": 2.0}),
    "decider:isl_bounding.eff_isl_ratio_threshold": acts(0.7, 2.0, **APART),
    "decider:isl_bounding.decode_busy_threshold": acts(ABSENT, 0.1, **APART | {
        "cluster__disaggregation__eff_isl_ratio_threshold": 2.0}),
    "decider:prefill_load.prefill_busy_threshold": acts(0.25, 9.0, **APART),
    "decider:prefill_load.decode_busy_threshold": acts(ABSENT, 0.1, **APART),
    "decider:isl_or_load.eff_isl_threshold": acts(50, 2048, **APART | {
        "cluster__disaggregation__eff_isl_ratio_threshold": 2.0,
        "cluster__disaggregation__prefill_busy_threshold": 90.0}),
    "decider:isl_or_load.eff_isl_ratio_threshold": acts(0.7, 2.0, **APART | {
        "cluster__disaggregation__prefill_busy_threshold": 90.0}),
    "decider:isl_or_load.prefill_busy_threshold": acts(0.01, 90.0, **APART | {
        "cluster__disaggregation__eff_isl_threshold": 10}),
    "decider:isl_or_load.decode_busy_threshold": acts(ABSENT, 0.1, **APART | {
        "cluster__disaggregation__eff_isl_ratio_threshold": 2.0}),
}
FEW = {"prompt_tokens": 10, "ttft_ms": 1.0, "tokens_per_s": 500.0}
SOME = {"context_tokens": 10, "concurrency": 1.0, "itl_ms": 5.0, "tokens_per_s": 100.0}
PLANNED = APART | {"pools": [pool | {"max_replicas": 4} for pool in POOLS], "autoscaling__policy": "planner",
                   "autoscaling__interval_s": 0.1, "autoscaling__itl_ms": 9.0, "autoscaling__prefill_profile": [FEW],
                   "autoscaling__decode_profile": [SOME]}
LEVELS = {"autoscaling__decode_profile": [SOME, SOME | {"concurrency": 100, "itl_ms": 99.0, "tokens_per_s": 9e3}]}
PLANNER = {
    "autoscaler:planner.itl_ms": acts(3.0, 300.0, **PLANNED | LEVELS),
    "autoscaler:planner.corrects": acts(True, False, **PLANNED | {
        "autoscaling__prefill_profile": [FEW | {"ttft_ms": 1e6}]}),
    "autoscaler:planner.max_accelerators": acts(ABSENT, 2, **PLANNED),
    "autoscaler:planner.prefill_profile[].prompt_tokens": acts(1, 200, **PLANNED | {
        "autoscaling__prefill_profile": [FEW, FEW | {"prompt_tokens": 300, "tokens_per_s": 1e6}]}),
    "autoscaler:planner.prefill_profile[].ttft_ms": acts(1.0, 1e6, **PLANNED),
    "autoscaler:planner.prefill_profile[].tokens_per_s": acts(10.0, 1e6, **PLANNED),
    "autoscaler:planner.decode_profile[].context_tokens": acts(1, 200, **PLANNED | {
        "autoscaling__decode_profile": [SOME, SOME | {"context_tokens": 300, "tokens_per_s": 1e6}]}),
    "autoscaler:planner.decode_profile[].concurrency": acts(1, 99, **PLANNED | LEVELS),
    "autoscaler:planner.decode_profile[].itl_ms": acts(0.1, 9.0, **PLANNED | LEVELS),
    "autoscaler:planner.decode_profile[].tokens_per_s": acts(10.0, 1e6, **PLANNED)
}
HAND_OVER = PLANNER | ROLES | DISAGGREGATION | {f"kv_transfer.{key}": case for key, case in KV_TRANSFER.items()}
