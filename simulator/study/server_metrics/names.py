"""Names of vLLM's metrics that are read, without `vllm:`.

Source of names: vLLM 0.33.0, v1/metrics/loggers.py; older ones: vLLM 0.8 to 0.11, the same file.
"""
PREFIX = "vllm:"
OLD_NAMES = {
    "gpu_cache_usage_perc": "kv_cache_usage_perc",
    "gpu_prefix_cache_queries_total": "prefix_cache_queries_total",
    "gpu_prefix_cache_hits_total": "prefix_cache_hits_total",
    "time_per_output_token_seconds": "inter_token_latency_seconds",
}
COUNTERS = (
    "request_success_total", "prompt_tokens_total", "generation_tokens_total", "num_preemptions_total",
    "prefix_cache_queries_total", "prefix_cache_hits_total")
HIT_RATE = "prefix_cache_hit_rate"          # in lines of statistics alone
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", HIT_RATE)
HISTOGRAMS = (
    "time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds",
    "request_queue_time_seconds", "request_prompt_tokens", "request_generation_tokens", "iteration_tokens_total")
START = "process_start_time_seconds"
CONFIG = "cache_config_info"                # flags of the server are its labels
ENDINGS = ("_bucket", "_sum", "_count")


def plain_name(name: str) -> str:
    """Return the newest name of a metric, without `vllm:`."""
    bare = name.removeprefix(PREFIX)
    ending = next((each for each in ENDINGS if bare.endswith(each)), "")
    stem = bare.removesuffix(ending)
    if stem + "_total" in (*COUNTERS, *OLD_NAMES):
        stem += "_total"
    return OLD_NAMES.get(stem, stem) + ending


def is_known(name: str) -> bool:
    """Return whether a metric is read, by its newest name."""
    stem = next((name.removesuffix(each) for each in ENDINGS if name.endswith(each)), None)
    return name in (*COUNTERS, *GAUGES, START, CONFIG) or stem in HISTOGRAMS
