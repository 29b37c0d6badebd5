"""Instances of gateways in summary.json: shares of the requests, and waits for their workers."""
import numpy as np

from simulator.domain import records
from simulator.domain.run import Run
from simulator.results.distributions import distribution
from simulator.results.summary_keys import DISTRIBUTION, keys_of

SUMMARY_KEYS = {
    **keys_of("requests", gateways__fewest="requests of the instance with the fewest",
              gateways__most="requests of the instance with the most"),
    **keys_of(gateways__count="instances, of all models together",
              gateways__decisions="decisions that ended; null where they take no time",
              gateways__utilisation="decision time over the time of the workers, from the first request of an instance "
              "to its last decision, mean of the instances; null where decisions take no time",
              gateways__peak_utilisation="utilisation of the busiest instance; null where decisions take no time"),
    **keys_of("ms", gateways__wait_ms=DISTRIBUTION + "time for which requests waited for a worker of their gateway")}
SATURATED = 0.9         # utilisation of an instance that is a bottleneck if requests also wait
LONG_WAIT = 10.0        # mean wait in decisions


def metrics_of(run: Run, assignments: list, num_workers: int) -> tuple[dict, list[str]]:
    """Return the part of the summary about gateways, and notes on bottlenecks.

    The part has the keys of SUMMARY_KEYS.

    assignments : of each gateway, the instance of each request, int32 (requests,), -1: it did not come to the gateway;
        and the number of instances. num_workers : of an instance.
    """
    counts = np.concatenate([np.bincount(rows[rows >= 0], minlength=count) for rows, count in assignments])
    found = {"count": len(counts), "fewest": int(counts.min()), "most": int(counts.max()),
             "decisions": None, "utilisation": None, "peak_utilisation": None, "wait_ms": distribution(np.empty(0))}
    if "gateway_workers" not in run.records:
        return found, []
    chosen = records.has_come(run.workload.requests["status"]) & (run.columns["gateway"] >= 0)
    if run.workload.measured is not None:
        chosen &= run.workload.measured
    uses, notes = [], []
    for (rows, count), workers in zip(assignments, run.records["gateway_workers"], strict=True):
        for number in range(count):
            if workers["last_ns"][number] > workers["first_ns"][number] >= 0:
                span_ns = int(workers["last_ns"][number] - workers["first_ns"][number])
                uses.append(_use(run, rows == number, num_workers * span_ns))
                notes += _bottleneck(run, rows == number, uses[-1], f"instance {number} of {count}")
    return found | {
        "decisions": int(sum(each["decisions"].sum() for each in run.records["gateway_workers"])),
        "utilisation": float(np.mean(uses)) if uses else None, "peak_utilisation": max(uses, default=None),
        "wait_ms": distribution(run.columns["gateway_wait_ns"][chosen] / 1e6)}, notes


def _use(run: Run, rows: np.ndarray, workers_ns: int) -> float:
    return min(float(run.columns["gateway_decision_ns"][rows].sum()) / workers_ns, 1.0)


def _bottleneck(run: Run, rows: np.ndarray, use: float, name: str) -> list[str]:
    """Return a note on an instance that holds its requests up."""
    wait_ns, decision_ns = (float(run.columns[f"gateway_{each}_ns"][rows].mean()) for each in ("wait", "decision"))
    if use < SATURATED or wait_ns < LONG_WAIT * decision_ns:
        return []
    return [f"[cluster.gateways] {name} is a bottleneck: its workers decided for {use:.0%} of the time, and requests "
            f"waited {wait_ns / 1e6:,.1f} ms in the mean for a decision of {decision_ns / 1e6:.3g} ms: raise count or "
            "workers"]


def sentence(gateways: dict) -> str:
    """Return in words the number of instances, their use, and the waits for them."""
    shares = f"{gateways['count']} with {gateways['fewest']:,} to {gateways['most']:,} requests each"
    if gateways["utilisation"] is None:
        return shares
    return (f"{shares}, busy {gateways['utilisation']:.1%} of the time; requests waited "
            f"{gateways['wait_ms']['mean'] or 0.0:,.2f} ms for a worker in the mean")
