"""As every_key_sections.py, for the keys of Llumnix's router and rescheduler."""
from pathlib import Path

from support.every_key import acts, refuses
from support.every_key_hand_over import APART
from support.every_key_sections import MOVES, SLOW

DATA = Path(__file__).parents[2] / "configs" / "data"
TABLES = {"ttft_profiling_data_path": str(DATA / "prefills.json"),
          "tpot_profiling_data_path": str(DATA / "decodes.json")}
SHOWS = {"output__decisions": 3, **SLOW}            # metrics stand in /candidates


def routing(**keys):
    """Return settings of the router."""
    return {f"cluster__routing__{key}": value for key, value in keys.items()}


def composed(**keys):
    """Return settings of a composition for whole requests."""
    return SHOWS | {"cluster__routing__infer_types": [{"infer_type": "neutral", **keys}]}


NOT_YET = 'there is no pool with role = "prefill" or "decode"'
NUMBER = {"name": "metric", "metrics": ["num_requests"]}
BELOW = {"name": "metric", "metric": "num_requests", "threshold": 2.0}
SLO = routing(scheduling_policy="slo", **TABLES)
STAGED = APART | {"cluster__disaggregation__stage_order": "prefill_first"}
CACHED = routing(enable_cache_aware_scheduling=True, cache_aware_min_tokens=0, kvs_chunk_size=16)
FAILS = {"failures": [{"kind": "link", "which": 0, "at_s": 0.05, "duration_s": 3.0}], "workload__time_scale": 10.0,
         "cluster__health__detection_delay_s": 100.0, "hardware__name": "h100-sxm-80gb", "topology__node": "dgx-h100"}
ROUTER = {
    "scheduling_policy": acts("load-balance", "flood", **SHOWS),
    "mode": acts("full", "lite", **SHOWS),
    "infer_types[].infer_type": refuses("decode", "without pools of role", **composed(selector=NUMBER)),
    "infer_types[].metrics": refuses(["predicted_ttft"], "ttft_profiling_data_path", **composed(selector=NUMBER)),
    "infer_types[].filters[].name": acts("metric", "schedulability", **composed(selector=NUMBER, filters=[
        {"metric": "num_requests", "threshold": 0.5}])),
    "infer_types[].filters[].metric": acts("num_requests", "all_prefills_tokens_num", **composed(
        selector={"name": "fixed_preference"}, filters=[BELOW | {"threshold": 3.0}])),
    "infer_types[].filters[].threshold": acts(0.5, 9.0, **composed(selector=NUMBER, filters=[BELOW])),
    "infer_types[].filters[].skip_in_fallback": acts(True, False, **composed(
        selector=NUMBER, filters=[BELOW | {"threshold": -1.0}])),
    "infer_types[].filters[].infer_type": acts("neutral", "decode", **composed(
        selector=NUMBER, filters=[{"name": "infer_type"}])),
    "infer_types[].filters[].invert": acts(False, True, **composed(selector=NUMBER, filters=[BELOW])),
    "infer_types[].selector.name": acts("metric", "fixed_preference", **composed(selector=NUMBER)),
    "infer_types[].selector.metrics": acts(["num_requests"], ["all_prefills_tokens_num"], **composed()),
    "infer_types[].selector.top_k": acts(1, 3, **composed(selector=NUMBER)),
    "infer_types[].selector.tpot_limit_ms": acts(0.0, 1e4, **routing(**TABLES), **composed(
        selector={"name": "slo_decode_adaptive"}, filters=[BELOW | {"threshold": -1.0}])),
    "dispatch_top_k": acts(1, 3, **SHOWS),
    "dispatch_neutral_load_metric": acts("all_prefills_tokens_num", "num_requests", **SHOWS),
    "dispatch_neutral_load_threshold": acts(1.0, 8192.0, **SHOWS),
    "headroom[].priority": acts(0, 7, **SHOWS, **routing(dispatch_neutral_load_metric="freeness", headroom=[
        {"tokens": 900}])),
    "headroom[].tokens": acts(1, 900, **SHOWS, **routing(dispatch_neutral_load_metric="freeness", headroom=[
        {"priority": 0}])),
    "status_steps": acts(1, 9, **SHOWS),
    "status_push_interval_s": acts(0.0, 0.3, **SHOWS), "status_poll_interval_s": acts(0.0, 0.3, **SHOWS),
    "enable_instance_status_local_account": acts(True, False, **SHOWS),
    "request_local_account_staleness_s": acts(0, 10, **SHOWS | routing(status_push_interval_s=3.0) | {
        "workload__time_scale": 10.0}),
    "enable_cache_aware_scheduling": acts(False, True, **CACHED, **SHOWS),
    "cache_aware_min_tokens": acts(0, 1024, **CACHED, **SHOWS), "kvs_chunk_size": acts(16, 64, **CACHED, **SHOWS),
    "dispatch_prefill_cache_locality_metric": acts("cache_aware_all_prefills_tokens_num", "num_requests", **CACHED,
                                                   **SHOWS),
    "requests_report_duration_s": acts(0.0, 0.05, **SHOWS | routing(mode="lite")),
    "upstream_compat": acts(False, True, **SHOWS | CACHED),
    "ttft_profiling_data_path": refuses("no-such.json", "no-such.json"),
    "tpot_profiling_data_path": refuses("no-such.json", "no-such.json"),
    **{key: refuses(value, NOT_YET, **SHOWS) for key, value in {
        "dispatch_prefill_load_metric": "num_requests", "dispatch_prefill_load_threshold": 1.0,
        "dispatch_decode_load_metric": "num_requests", "dispatch_decode_load_threshold": 5.0,
        "enable_predictor_enhanced_scheduling": True, "num_predictor_warmup_samples": 1, "num_profiling_steps": 7,
        "max_num_batched_tokens": 16, "ttft_slo_ms": 1.0, "ttft_slo_dispatch_threshold": 0.001, "tpot_slo_ms": 1.0,
        "tpot_slo_dispatch_threshold": 0.001}.items()},
    "enable_adaptive_pd": acts(False, True, **STAGED, **SLO),
}


def moving(*policies, **keys):
    """Return settings of the rescheduler with these policies, asked often."""
    given = {"policies": list(policies), "interval_ms": 10.0, "bandwidth_gb_per_s": 1.0,
             "kv_bytes_per_token": 1e5} | keys
    moves = {key: value for key, value in MOVES.items() if not key.startswith("cluster__rescheduling")}
    return moves | {f"cluster__rescheduling__{key}": value for key, value in given.items()} | {
        "pools": [{"name": "a"}]}


def balancing(**keys):
    """Return settings under which full replicas give to others."""
    return moving("neutral_load", neutral_load_threshold=0.1, load_balance_threshold=0.01, **keys)


def packing(*policies):
    """Return settings under which decodes of 6.2 ms are packed; limits of 5 ms let all of them move."""
    keys = {"tpot_profiling_data_path": TABLES["tpot_profiling_data_path"], "tpot_slo_ms": 50.0,
            "tpot_migrate_out_ceil_threshold": 0.01, "tpot_migrate_out_floor_threshold": 100.0,
            "tpot_slo_dispatch_threshold": 100.0}
    return moving(*policies, **keys) | {"cluster__routing__policy": "round_robin"}


def freeing(**headroom):
    """Return settings under which replicas with little room give to others, and keep some for urgent requests."""
    return moving("neutral_load", neutral_load_metric="freeness", neutral_load_threshold=150.0, headroom=[headroom])


RESCHEDULER = {
    "headroom[].priority": acts(0, 7, **freeing(tokens=6000)),
    "headroom[].tokens": acts(1, 6000, **freeing(priority=0)),
    "policies": acts([], ["neutral_load"], **balancing()),
    "interval_ms": acts(10.0, 100.0, **balancing()),
    "decode_load_metric": refuses("num_requests", NOT_YET, **moving("decode_load")),
    "decode_load_threshold": refuses(0.1, NOT_YET, **moving("decode_load")),
    "neutral_load_metric": acts("kv_cache_usage_ratio_projected", "num_requests", **balancing()),
    "neutral_load_threshold": acts(0.1, 5.0, **balancing()),
    "load_balance_threshold": acts(0.01, 0.9, **balancing()),
    "load_balance_scope": acts("cluster", "unit", **balancing()),
    "req_select_rule": acts("TOKEN", "NUM_REQ", **balancing(req_select_value=1.0)),
    "req_select_order": acts("SR", "LR", **balancing(req_select_value=100.0)),
    "req_select_value": acts(1.0, 1024.0, **balancing()),
    "status_steps": acts(1, 9, **balancing()), "status_push_interval_s": acts(0.0, 0.3, **balancing()),
    "status_poll_interval_s": acts(0.0, 0.3, **balancing()),
    "failover_domain": acts("instance", "node", **FAILS | moving("neutral_failover", instance_staleness_s=0)),
    "data_parallel_size": acts(1, 3, **FAILS | moving("neutral_failover", instance_staleness_s=0)),
    "instance_staleness_s": acts(0, 60, **FAILS | moving("neutral_failover")),
    "enable_adaptive_pd": acts(False, True, **packing()),
    "tpot_slo_ms": acts(0.001, 1e6, **packing("binpacking_consolidation")),
    "tpot_slo_dispatch_threshold": acts(0.001, 100.0, **packing("binpacking_consolidation")),
    "tpot_migrate_out_floor_threshold": acts(0.01, 100.0, **packing("binpacking_consolidation")),
    "ttft_profiling_data_path": refuses("no-such.json", "no-such.json", **moving()),
    "tpot_profiling_data_path": refuses("no-such.json", "no-such.json", **moving()),
}
LLUMNIX = {f"router:llumnix.{key}": case for key, case in ROUTER.items()} | {
    f"rescheduler:llumnix.{key}": case for key, case in RESCHEDULER.items()}
