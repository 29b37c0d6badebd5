"""Remarks on front ends that got more requests than their processes are known to take.

By default no request waits for another at an API server ([latency.host]): a rate that accelerators hold may be more
than the front end holds. The times are those of `domain.host.HostParameters`: bursts of chats to vLLM 0.11.
"""
from collections.abc import Iterator

from simulator.domain.host_defaults import FRONT_ENDS_ALIKE, SEEN_FRONT_END_MS

ENGINES = ("vllm", *FRONT_ENDS_ALIKE)       # schedulers of engines with API servers


def front_end_notes(experiment, summary: dict) -> list[str]:
    """Return a remark on each pool with API servers that may hold less than it served.

    summary : as in summary.json.
    """
    least_ms, most_ms = SEEN_FRONT_END_MS
    return [f"{place}latency.host: front_end_us is 0, so no request waits for others at an API server, of which each "
            f"gets {rate_per_s:,.0f} requests/s; bursts of chats to vLLM 0.11 suggest {least_ms} to {most_ms} ms a "
            f"request, {1000 // most_ms} to {1000 // least_ms} requests/s a process"
            for place, rate_per_s in _rates(experiment, summary) if rate_per_s > 1000 / most_ms]


def _rates(experiment, summary: dict) -> Iterator[tuple[str, float]]:
    """Yield pools with unpriced API servers, and the requests a second of a process."""
    for pool in experiment.all_pools():
        host, ranks = pool.latency.host, pool.topology.data_parallel
        if (pool.hardware is None or pool.engine.scheduler not in ENGINES or host.defaults == "none"
                or host.front_end_us or host.front_end_per_prompt_token_us):
            continue
        own = summary["by_pool"].get(pool.name)
        served = [own] if own else [rank for each in summary["replicas"] for rank in each.get("ranks", [each])]
        up_s = sum(each.get("up_s", 0.0) for each in served)
        rate_per_s = (sum(each["requests"] for each in served) / up_s if up_s
                      else summary["request_throughput"] / len(served))      # one replica, always up
        yield f"pool {pool.name}: " if own else "", rate_per_s * ranks / (host.api_server_count or ranks)
