"""One number by which runs can be compared, higher is better.

Source: BLIS (inference-sim), sim/cluster/metrics.go, ComputeFitness, with ticks of a microsecond: a latency of 1 ms is
worth 1/2, as are 100 requests/s and 10,000 output tokens/s. Weights are not made to sum to 1.
"""
LATENCIES = {       # key of [fitness] -> metric of summary.json, statistic
    "p99_ttft": ("ttft_ms", "p99"), "p50_ttft": ("ttft_ms", "p50"), "mean_ttft": ("ttft_ms", "mean"),
    "p99_e2e": ("e2el_ms", "p99"), "p50_e2e": ("e2el_ms", "p50"), "mean_e2e": ("e2el_ms", "mean")}
RATES = {           # key of [fitness] -> metric, the rate that is worth 1/2
    "throughput": ("request_throughput", 100.0), "tokens_per_sec": ("output_throughput", 10_000.0)}


def fitness(summary: dict, weights) -> dict:
    """Return the fitness of a run with its parts.

    Parameters
    ----------
    summary : metrics as in summary.json.
    weights : object with the keys of [fitness].
    """
    parts = {key: {"weight": weight, "value": _value(summary, key)}
             for key in (*LATENCIES, *RATES) if (weight := getattr(weights, key))}
    return {"total": sum(part["weight"] * part["value"] for part in parts.values()), "parts": parts}


def _value(summary: dict, key: str) -> float:
    """Return the score of a metric, 0 to 1; 0 where no request has it."""
    if key in RATES:
        metric, half = RATES[key]
        return summary[metric] / (summary[metric] + half)
    metric, statistic = LATENCIES[key]
    latency_ms = summary[metric][statistic]
    return 0.0 if latency_ms is None else 1 / (1 + latency_ms)
