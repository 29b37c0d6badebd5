"""Two sentences that are read before all else: what came of it, and what stood in the way."""
import numpy as np

from simulator.results.figures.chart import number
from simulator.results.reports.material import Material
from simulator.results.served import UNSERVED
from simulator.results.slo import completed_of, latencies_ms

KEPT = 0.99                 # of the requests that came: fewer within their bounds, and the SLO is missed
FULL = 0.95                 # of the KV blocks
MOSTLY = 0.5                # of the busy time
BUSY = 0.95                 # of the time from the first iteration to the last
WAITS = 0.05                # of the busy time: with less nobody is held back
BOUNDS = (("ttft_ms", "TTFT"), ("tpot_ms", "TPOT"), ("e2el_ms", "E2EL"))
BACKLOGS = {"overloaded": "growing, overloaded", UNSERVED: "not told: most requests were not served"}
LIMITS = (("kv", "KV full"), ("seqs", "max_num_seqs reached"), ("budget", "token budget reached"))


def verdict(material: Material) -> str:
    """Return one line: whether the SLO was kept, the goodput, and the backlog."""
    summary = material.summary
    goodput = summary["request_goodput"]
    backlog = BACKLOGS.get(summary["verdict"], summary["verdict"])
    if goodput is None:
        kept, good = "SLO none", "goodput not defined"
    else:
        share = summary.get("slo_attainment") or 0.0
        kept = (f"SLO {'met' if share >= KEPT else 'missed'} ({share:.2%} of the requests kept it, {KEPT:.0%} are asked"
                f"{_binding(material)})")
        good = f"goodput {number(goodput)} requests/s"
    lead = "" if summary["complete"] else "Incomplete: the run was interrupted, and what it did not reach is missing. "
    if summary.get("unserved"):
        lead += f"Not served: {summary['unserved']}. "
    return f"{lead}{kept}; {good}; backlog {backlog}."


def _binding(material: Material) -> str:
    """Return which bound of [slo] is broken most often."""
    if material.requests is None:
        return ""
    completed = completed_of(material.requests)
    broken = {label: int((latencies_ms(key, completed) > bound).sum()) for key, label in BOUNDS
              if (bound := material.bound_ms(key)) is not None}
    worst = max(broken, key=broken.get, default=None)
    return f"; {worst} breaks its bound most often, {broken[worst]:,} times" if worst and broken[worst] else ""


def limits_of(material: Material) -> tuple[np.ndarray, np.ndarray]:
    """Return max_num_seqs and max_num_batched_tokens of each row of /replicas.

    0: it is not known.

    Rows follow the pools in their order; where pools differ and their replicas do not add up, nothing is known.
    """
    pools, count = material.experiment.get("pools", []), len(material.result.replicas)
    engines = [pool.get("engine", {}) for pool in pools] or [material.experiment.get("engine", {})]
    found = [(engine.get("max_num_seqs", 0), engine.get("max_num_batched_tokens", 0)) for engine in engines]
    if len(set(found)) == 1:
        rows = found[:1] * count
    else:
        rows = [each for pool, each in zip(pools, found, strict=True)
                for _ in range(pool.get("replicas", 0) * pool.get("topology", {}).get("data_parallel", 1))]
        rows = rows if len(rows) == count else [(0, 0)] * count
    limits = np.array(rows, np.int64).reshape(count, 2)
    return limits[:, 0], limits[:, 1]


def pressures(material: Material) -> dict[str, float]:
    """Return the shares of the busy time in which limits held requests back.

    `kv`, `seqs`, `budget`: the limit was reached and requests waited; `waiting`: requests waited; `busy`: of the whole
    time from the first iteration to the last, of the replicas that served anything. All 0 without iterations.
    """
    lanes = material.lanes
    weight = lanes.duration_ns.astype(np.float64)
    total = weight.sum()
    if not total:
        return dict.fromkeys(("kv", "seqs", "budget", "waiting", "busy"), 0.0)
    counts = np.diff(lanes.bounds)
    max_seqs, budget = (np.repeat(each, counts) for each in limits_of(material))
    waits = lanes.column("waiting") > 0
    reached = {"kv": lanes.column("used_blocks") >= FULL * lanes.capacity,
               "seqs": (max_seqs > 0) & (lanes.column("running") >= max_seqs),
               "budget": (budget > 0) & (lanes.batch_tokens >= budget)}
    shares = {name: float(weight[waits & each].sum() / total) for name, each in reached.items()}
    span_ns = lanes.end_of_all_ns - int(lanes.begin_ns.min())
    return shares | {"waiting": float(weight[waits].sum() / total),
                     "busy": float(total / (span_ns * np.count_nonzero(counts)))}


def bottleneck(material: Material) -> str:
    """Return what held requests back, by the first rule that holds.

    The limits of `LIMITS`, in their order, each where it is reached, while requests wait, for more than half of the
    busy time; compute, where replicas are busy 95 % of the time and requests wait 5 % of it or the backlog grows; else
    arrivals.
    """
    if material.lanes is None:
        return "What held requests back is not known without /iterations."
    if not len(material.lanes):
        return "Nothing ran."
    found = pressures(material)
    shares = ", ".join(f"{label} {found[name]:.0%}" for name, label in LIMITS)
    facts = (f"Replicas were busy {found['busy']:.0%} of the time; of that, requests waited {found['waiting']:.0%}, "
             f"with {shares}.")
    says = {"kv": "KV-limited: requests waited for KV blocks.",
            "seqs": "Limited by max_num_seqs: requests waited for a place in the batch.",
            "budget": "Limited by max_num_batched_tokens: requests waited for room in the batch's token budget."}
    for name, _ in LIMITS:
        if found[name] > MOSTLY:
            return f"{says[name]} {facts}"
    grows = material.summary["verdict"] in ("growing", "overloaded")
    if found["busy"] >= BUSY and (found["waiting"] >= WAITS or grows):
        return f"Compute-limited: replicas computed all the time, no other limit was reached for long. {facts}"
    return f"Arrival-limited: no limit was reached for long, so more load would be served. {facts}"
