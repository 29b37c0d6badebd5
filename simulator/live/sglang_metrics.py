"""The metrics of SGLang, by replica.

Source: sgl-project/sglang 44cedc2b, python/sglang/srt/observability/metrics_collector.py: names, types, bounds, and
when each is observed; token counts grow as requests end.
cache_hit_rate is that of all prompts so far, and gen_throughput that of the last whole second;
SGLang reports both of its last batches.
"""
from simulator.live.exposition import Page
from simulator.live.metrics import Tally, loads
from simulator.live.service import Service

FIRST_TOKEN_S = (.1, .2, .4, .6, .8, 1., 2., 4., 6., 8., 10., 20., 40., 60., 80., 100., 200., 400.)
REQUEST_S = (*FIRST_TOKEN_S, 600., 1200., 1800., 2400.)
TOKEN_S = (.002, .004, .006, .008, .01, .015, .02, .025, .03, .035, .04, .06, .08, .1, .2, .4, .6, .8, 1., 2., 4., 6.,
           8.)
QUEUE_S = (0., .1, .2, .5, 1., 2., 3., 4., 5., 10., 15., 20., 30., 40., 50., 60., 70., 80., 90., 100., 200., 300., 400.,
           500., 600., 700., 800., 900., 1000., 1200., 1400., 1600., 1800., 2000., 2500., 3000.)
RETRACTIONS = (0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 15., 20., 25., 30., 40., 50., 75., 100.)
# Observation of `metrics.Tally` -> name of the histogram, meaning, bounds.
HISTOGRAMS = {
    "time_to_first_token_seconds": ("time_to_first_token_seconds", "Time to first token in seconds.", FIRST_TOKEN_S),
    "inter_token_latency_seconds": ("inter_token_latency_seconds", "Inter-token latency in seconds.", TOKEN_S),
    "e2e_request_latency_seconds": ("e2e_request_latency_seconds", "End-to-end latency in seconds.", REQUEST_S),
    "request_queue_time_seconds": ("queue_time_seconds", "Time in the queue in seconds.", QUEUE_S),
    "request_num_preemptions": ("num_retractions", "Retractions of a request.", RETRACTIONS),
}
OBSERVED = {name: (meaning, bounds) for name, (_, meaning, bounds) in HISTOGRAMS.items()}


def page(service: Service, tally: Tally, model: str, only: slice, is_full: bool = True) -> Page:
    """Return the page of /metrics; parameters as of `metrics.page`."""
    made, replicas, states = Page(), service.fleet.cluster.replicas[only], loads(service.fleet)[only]
    tallies, now_ns = tally.replicas[only], service.clock.now_ns()
    labels = [{"model_name": model, "engine_type": "unified", "dp_rank": str(i)} for i in range(len(replicas))]

    def family(name, kind, meaning, values):
        made.family(f"sglang:{name}", kind, meaning, zip(labels, values, strict=True))

    caches, schedulers = [each.rank.kv for each in replicas], [each.rank.scheduler for each in replicas]
    family("num_running_reqs", "gauge", "Running requests.", [each["running"] for each in states])
    family("num_queue_reqs", "gauge", "Requests in the waiting queue.", [each["waiting"] for each in states])
    family("num_used_tokens", "gauge", "Used tokens.", [
        (kv.num_blocks - kv.free_blocks) * kv.block_size for kv in caches])
    family("token_usage", "gauge", "Share of the tokens that are used.", [each["kv_cache_usage"] for each in states])
    family("max_total_num_tokens", "gauge", "Tokens of the KV cache.", [kv.num_blocks * kv.block_size for kv in caches])
    family("cache_hit_rate", "gauge", "Share of prompt tokens found in the cache.", [
        each.prefix_hit_tokens / max(each.prefix_query_tokens, 1) for each in schedulers])
    made.family("sglang:cache_config_info", "gauge", "Information on the KV cache.", [
        (labels[i] | {"page_size": str(kv.block_size), "num_pages": str(kv.num_blocks)}, 1)
        for i, kv in enumerate(caches)])
    if not is_full:
        return made
    family("gen_throughput", "gauge", "Generated tokens a second.", [each.tokens_per_s(now_ns) for each in tallies])
    family("prompt_tokens_total", "counter", "Prefill tokens processed.", [
        each.ended_prompt_tokens for each in tallies])
    family("generation_tokens_total", "counter", "Generation tokens processed.", [
        each.ended_generation_tokens for each in tallies])
    family("num_requests_total", "counter", "Requests processed.", [
        each.ended["stop"] + each.ended["length"] for each in tallies])
    family("num_aborted_requests_total", "counter", "Requests aborted.", [each.ended["abort"] for each in tallies])
    for observed, (name, meaning, _) in HISTOGRAMS.items():
        family(name, "histogram", meaning, [each.histograms[observed] for each in tallies])
    return made
