"""The names of Llumnix's metrics, filters, selectors, roles and domains, in the order of their codes."""

# The order of the enum Metric in metrics.pxd.
METRIC_NAMES = (
    "kv_cache_usage_ratio_projected", "decode_batch_size", "num_waiting_requests", "all_prefills_tokens_num",
    "kv_cache_hit_len", "cache_aware_all_prefills_tokens_num", "num_requests", "all_decodes_tokens_num",
    "num_requests_lite", "num_tokens", "predicted_ttft", "predicted_tpot", "freeness")
# The order of the enums FilterKind and FailoverDomain in filters.pxd.
FILTER_NAMES = ("schedulability", "staleness", "metric", "infer_type", "reserved", "failover",
                "failover_migration_source")
FAILOVER_DOMAINS = ("instance", "node", "instance-unit", "node-unit")
# The order of the enum SelectorKind in selectors.pxd.
SELECTOR_NAMES = ("metric", "fixed_preference", "slo_prefill_adaptive", "slo_decode_adaptive")
# The order of the enum InferType in domain/replica_state.pxd.
INFER_TYPES = ("neutral", "prefill", "decode")

PREDICTED = ("predicted_ttft", "predicted_tpot")    # metrics that need the profiling tables
LITE = ("num_requests", "num_tokens")               # all that the gateway knows in lite mode


def metric_code(name: str, is_lite: bool = False) -> int:
    """Return the code of a metric; `num_requests` means another thing in lite mode."""
    return METRIC_NAMES.index("num_requests_lite" if is_lite and name == "num_requests" else name)
