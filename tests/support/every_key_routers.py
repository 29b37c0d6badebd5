"""Two values of each key of routers, their filters and scorers."""
from support.every_key import ABSENT, acts
from support.every_key_policies import IMAGES, TIGHT, at, of, routing
from support.every_key_sections import FAILS, SLOW, TIERS
from support.every_key_workloads import GROUPS, preset

SCORED = routing(policy="weighted") | {"output__decisions": 3}       # scores stand in /candidates


SECOND = {"name": "active-requests", "weight": 0.5}


def scorer(name, **keys):
    """Return entries of a scorer that alone decides."""
    return of(f"scorer:{name}", {key: acts(*values[:2], **SCORED | routing(
        scorers=[{"weight": 1.0, **(values[2] if len(values) > 2 else {})}, SECOND])) for key, values in keys.items()})


def filters(name, **keys):
    """Return entries of a filter before the usual scores; beside two values, its other keys."""
    return of(f"filter:{name}", {key: acts(*values[:2], **SCORED | routing(
        filters=[values[2] if len(values) > 2 else {}], snapshot_refresh_interval_s=0.02))
        for key, values in keys.items()})


EQUAL_PROMPTS = preset(**GROUPS | {"preset": "vllm_prefix_repetition", "suffix_len": 0}) | SCORED | routing(
    scorers=[{"weight": 1.0}, SECOND])
IN_FLIGHT = {"attribute": "in_flight"}
TIGHT_SLO = {"explore_share": 0.0, "ttft_slo_ms": 3.0, "base_us": 1000.0}


def of_media(what, values, settings=None):
    """Return cases of what weighs host memory, disks and shared stores."""
    below = {"disk": "replica", "shared": "cluster"}
    return {f"{medium}_{what}": acts(*values, **(settings or {}) | TIERS | (
        {"kv_tiers__secondary": [{"name": "below", "scope": below[medium]}]} if medium in below else {}))
        for medium in ("host", "disk", "shared")}


HEADROOM = {"ttft_slo_ms": 5000.0, "tpot_slo_ms": 5000.0, "per_sequence_us": 1000.0}
KEYED = {"cluster__routing__assignment": "min_group"}
OF_SIZES = [{"prompt_tokens": 64, "output_tokens": 8, "concurrency": 1.0},
            {"prompt_tokens": 128, "output_tokens": 8, "concurrency": 9.0}]
ROUTERS = {
    **of("router:bucket", {
        "balance_abs_threshold": acts(0, 10**6), "balance_rel_threshold": acts(1.0, 100.0),
        "adjust_interval_s": acts(0.05, 100.0, cluster__routing__balance_abs_threshold=10**6),
        "first_span_tokens": acts(100, 4096, cluster__routing__balance_abs_threshold=10**6)}),
    "router:least_busy_time.period_s": acts(0.01, 10.0),
    **of("router:manual", {
        "key": acts("session", "tenant", **KEYED), "assignment": acts("random", "min_load"),
        "max_idle_s": acts(0.0, 0.001, cluster__routing__eviction_interval_s=0.01),
        "eviction_interval_s": acts(0.0, 0.001, cluster__routing__max_idle_s=0.001)}),
    **of("router:prefix_hash", {
        "prefix_tokens": acts(16, 256), "load_factor": acts(1.0, 1000.0), "points_per_replica": acts(1, 160)}),
    **of("router:prefix_preble", {
        "match_share": acts(0.0, 1.0), "window_s": acts(0.01, 100.0), "base_us": acts(0.0, 1e9),
        "per_prefill_token_us": acts(0.0, 1e6), "per_output_token_us": acts(0.0, 1e9),
        "output_tokens": acts(0, 10**6), "capacity_blocks": acts(1, 1000)}),
    **of("router:slo_least_load", {
        "profile[].prompt_tokens": acts(64, 4096, cluster__routing__profile=OF_SIZES),
        "profile[].output_tokens": acts(8, 4096, cluster__routing__profile=OF_SIZES),
        "profile[].concurrency": acts(1.0, 9.0, cluster__routing__profile=OF_SIZES),
        "usual_concurrency": acts(1.0, 64.0, cluster__routing__cap=1.0), "cap": acts(ABSENT, 0.02)}),
    **of("router:slo_pack_load", {
        "profile[].prompt_tokens": acts(64, 4096, cluster__routing__profile=OF_SIZES),
        "profile[].output_tokens": acts(8, 4096, cluster__routing__profile=OF_SIZES),
        "profile[].concurrency": acts(1.0, 9.0, cluster__routing__profile=OF_SIZES),
        "usual_concurrency": acts(1.0, 64.0), "cap": acts(0.1, 1.0)}),
    **of("router:cache_aware", {
        "balance_abs_threshold": acts(0, 64, cluster__routing__balance_rel_threshold=1.0, **SLOW),
        "balance_rel_threshold": acts(1.0, 100.0, cluster__routing__balance_abs_threshold=1, **SLOW),
        "cache_threshold": acts(0.1, 0.9), "otherwise": acts("least_loaded", "smallest_tree"),
        "capacity_blocks": acts(4, 1000)}),
    **of("router:consistent_hash", {
        "key": acts("session", "tenant"), "prefix_tokens": acts(16, 256, cluster__routing__key="prompt"),
        "points_per_replica": acts(1, 160), "max_load_factor": acts(ABSENT, 1.0)}),
    **of("router:dynamo", {
        "overlap_credit": acts(0.0, 1.0), **of_media("credit", (0.0, 10.0), routing(load="replicas")),
        "credit_decay": acts(0.0, 100.0, **SLOW), "load": acts("router", "replicas"),
        "output_blocks": acts(False, True, engine__block_size=8, output__decisions=3, **SLOW),
        "prefill_load_model": acts("none", "line", **SLOW),
        "prefill_base_us": acts(0.0, 1e6, cluster__routing__prefill_load_model="line", **SLOW),
        "per_prefill_token_us": acts(0.0, 1e5, cluster__routing__prefill_load_model="line", **SLOW),
        "assume_kv_reuse": acts(True, False, **SLOW),
        "track_prefill_tokens": acts(True, False, **SLOW), "active_decode_blocks_threshold": acts(ABSENT, 0.0),
        "active_prefill_tokens_threshold": acts(ABSENT, 0.0), "active_prefill_tokens_threshold_frac": acts(ABSENT, 0.0),
        "prefill_weight": acts(0.0, 1.0), "request_weight": acts(0.0, 100.0),
        "temperature": acts(0.0, 1.0), "overlap": acts("events", "approximate", **TIGHT),
        "predicted_ttl_s": acts(ABSENT, 10.0, cluster__routing__cache_signal_delay_s=1.0),
        "approximate_policy": acts("ttl", "lru", **routing(overlap="approximate", approximate_ttl_s=0.001)),
        "approximate_ttl_s": acts(0.001, 100.0, cluster__routing__overlap="approximate"),
        "capacity_blocks": acts(1, 1000, cluster__routing__overlap="approximate"),
        "session_affinity_ttl_s": acts(ABSENT, 1.0, **SLOW)}),
    **of("router:kvaware", {
        "threshold_tokens": acts(0, 2000), "rate_window_s": acts(
            0.001, 60.0, output__decisions=3, cluster__routing__threshold_tokens=0), "points_per_replica": acts(
            1, 160, cluster__routing__threshold_tokens=0)}),
    **of("router:least_latency", {"window_s": acts(0.01, 1000.0)}),
    **of("router:least_throughput", {"window_s": acts(0.01, 1000.0)}),
    **of("router:least_loaded", {"metric": acts("requests", "tokens")}),
    **of("router:litellm_latency", {
        "lowest_latency_buffer": acts(0.0, 10.0), "max_latency_list_size": acts(1, 10),
        "ttft_percentile": acts(0.0, 1.0), "ttl_s": acts(0.001, 3600.0), "streams": acts(True, False)}),
    **of("router:lmetric", {"capacity_blocks": acts(1, 1000)}),
    **of("router:lor", {"upstream_compat": acts(False, True)}),
    **of("router:power_of_two", {"metric": acts("requests", "tokens")}),
    **of("router:prefix_threshold", {
        "imbalance_requests": acts(0, 8), "stddev_factor": acts(0.0, 5.0), "capacity_blocks": acts(1, 1000)}),
    **of("router:prefixaware", {
        "min_match_tokens": acts(0, 500), "rate_window_s": acts(0.001, 60.0, cluster__routing__min_match_tokens=500),
        "ties": acts("random", "first", cluster__routing__min_match_tokens=500), "capacity_blocks": acts(1, 1000)}),
    **of("router:round_robin", {"counter": acts("replica", "open_set", **FAILS)}),
    **of("router:session", {
        "otherwise": acts("tenant", "least_loaded"), "points_per_replica": acts(1, 160),
        "rate_window_s": acts(0.001, 60.0, cluster__routing__otherwise="lowest_rate")}),
    **of("router:split_wise", {"counter": acts("replica", "open_set", **FAILS | {
        "kv_transfer": {"bandwidth_gb_per_s": 0.01, "kv_bytes_per_token": 1e3}, "engine__async_scheduling": False,
        "pools": [{"name": "p", "role": "prefill", "replicas": 3}, {"name": "d", "role": "decode"}]})}),
    **of("router:vllm_dp", {"vllm_version": acts("0.10", "0.32"), "client_count": acts(1, 3, **at(
        "cluster__routing", snapshot_refresh_interval_s=0.1)), "client_index": acts(
            0, 1, cluster__routing__client_count=2)}),
    **of("router:vtc", {
        "fairness_weight": acts(0.0, 10.0), "utilization_weight": acts(0.0, 10.0), "max_load": acts(1.0, 100.0),
        "input_token_weight": acts(0.0, 5.0), "output_token_weight": acts(0.0, 50.0),
        "min_bucket_tokens": acts(1.0, 1e6), "window_s": acts(0.01, 300.0)}),
    **of("router:waiting_limit", {"max_waiting": acts(0, 1000, **SLOW)}),
    **of("router:weighted", {"profile": acts("blis", "llm-d"), "picker": acts("max-score", "random"),
                           "ties": acts("number", "random")}),
    **scorer("active-requests", idle_threshold=(0, 5), max_busy_score=(1.0, 0.1)),
    "scorer:header-label.label": acts(
        "slo_class", "tenant", **SCORED | routing(scorers=[{"weight": 1.0}, SECOND]),
        pools=[{"name": "critical", "replicas": 2}, {"name": "t0", "replicas": 1}]),
    "scorer:mm-cache-affinity.capacity_items": acts(
        1, 2048, **IMAGES | {"workload__images__distinct": 3} | SCORED | routing(scorers=[{"weight": 1.0}, SECOND])),
    **scorer("burst-prefix", window_s=(0.01, 0.3), balance_by=("requests", "tokens")),
    **of("scorer:burst-prefix", {"most_together": acts(-1, 1, **EQUAL_PROMPTS),
                                 "min_colocate_blocks": acts(0, 100, **EQUAL_PROMPTS)}),
    **scorer("latency-headroom", ttft_slo_ms=(20.0, 500.0), tpot_slo_ms=(5.0, 500.0),
             ttft_weight=(0.1, 10.0, HEADROOM), tpot_weight=(0.0, 10.0, HEADROOM), strategy=("least", "most", HEADROOM),
             prefer_idle=(False, True, {"ttft_slo_ms": 1.0}),
             base_us=(100.0, 50_000.0), per_sequence_us=(0.0, 10_000.0), per_prefill_token_us=(0.0, 1000.0)),
    **scorer("load-aware", threshold_requests=(1, 128)),
    **scorer("lora-affinity", rule=("resident", "tiers"), max_loras=(1, 8)),
    **scorer("precise-prefix-cache", if_equal=("one", "half_if_none")),
    **of("scorer:precise-prefix-cache", of_media("weight", (0.0, 1.0), SCORED | routing(
        scorers=[{"weight": 1.0}, SECOND]))),
    **scorer("prefix-affinity", capacity_blocks=(1, 1000), max_blocks=(1, 1000), block_tokens=(0, 64),
             length_weight=(0.0, 0.9), scale_tokens=(100, 5000, {"length_weight": 0.9})),
    **scorer("endpoint-attribute", attribute=("in_flight", "kv_usage"), prefer=("lower", "higher", IN_FLIGHT),
             value_range=(ABSENT, [0.0, 1.0], IN_FLIGHT)),
    **filters("concurrency-detector", mode=("requests", "tokens", {"max_concurrency": 1}),
              max_concurrency=(1, 100), max_tokens=(10, 10**6, {"mode": "tokens"}),
              headroom=(0.0, 9.0, {"max_concurrency": 1})),
    **filters("endpoint-attribute", attribute=("in_flight", "running", {"threshold": 1.0}),
              operator=("<=", ">", {"attribute": "in_flight", "threshold": 1.0}),
              threshold=(1.0, 100.0, {"attribute": "in_flight"}),
              fallback_on_empty=(False, True, {"attribute": "in_flight", "threshold": -1.0})),
    "filter:label-selector.pools": acts(["a"], ["b"], **routing(policy="weighted"), pools=[
        {"name": "a", "replicas": 2}, {"name": "b", "replicas": 1}]),
    **filters("prefix-affinity", threshold=(0.1, 1.0), explore_share=(0.0, 0.9), capacity_blocks=(1, 1000),
              block_tokens=(0, 64), max_ttft_penalty_ms=(0.1, 0.0, {"threshold": 0.1}),
              peak_prefill_tokens_per_s=(10.0, 1e9, {"threshold": 0.1, "max_ttft_penalty_ms": 1.0})),
    **filters("session-affinity", ttl_s=(0.001, 300.0)),
    **filters("slo-headroom-tier", explore_share=(0.0, 1.0, TIGHT_SLO), ttft_slo_ms=(2.0, 500.0, TIGHT_SLO),
              tpot_slo_ms=(0.02, 500.0, TIGHT_SLO), base_us=(0.0, 2000.0, TIGHT_SLO | {"tpot_slo_ms": 1.5}),
              per_sequence_us=(0.0, 500.0, TIGHT_SLO | {"tpot_slo_ms": 1.5}),
              per_prefill_token_us=(0.0, 20.0, TIGHT_SLO)),
    **filters("utilization", max_active_requests=(1, 100), max_running_requests=(1, 100), max_waiting_requests=(0, 100),
              max_kv_usage=(0.1, 1.0), fallback_on_empty=(False, True, {"max_active_requests": 1})),
    **filters("utilization-detector", queue_depth_threshold=(0.5, 5.0, {"kv_usage_threshold": 1.0}),
              kv_usage_threshold=(0.1, 1.0), headroom=(0.0, 9.0, {"kv_usage_threshold": 0.1}),
              staleness_s=(0.0, 0.001, {"kv_usage_threshold": 0.1})),
    **scorer("queue-depth", load=("waiting", "effective")),
    **scorer("token-load", threshold_tokens=(10, 4194304)),
}
