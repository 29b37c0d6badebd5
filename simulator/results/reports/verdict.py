"""The two sentences at the top of a report: the SLO, goodput and backlog; and the bottleneck."""
from simulator.results.figures.chart import number
from simulator.results.reports.material import Material
from simulator.results.verdicts import UNSERVED

KEPT = 0.99                 # share of the arrived requests: with fewer within their bounds the SLO is missed
MOSTLY = 0.5                # of the busy time
BUSY = 0.95                 # of the time from the first iteration to the last
WAITS = 0.05                # of the busy time: with less no request is held back
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
    samples = material.requests.samples
    broken = {label: len(samples[key]) - samples[key].num_within for key, label in BOUNDS
              if samples[key].bound_ms is not None}
    worst = max(broken, key=broken.get, default=None)
    return f"; {worst} breaks its bound most often, {broken[worst]:,} times" if worst and broken[worst] else ""


def pressures(material: Material) -> dict[str, float]:
    """Return the shares of the busy time in which limits held requests back.

    `kv`, `seqs`, `budget`: the limit was reached and requests waited; `waiting`: requests waited; `busy`: of the whole
    time from the first iteration to the last, of the replicas that ran any iteration. All 0 without iterations.
    """
    span = material.lanes.span
    if not span.busy_ns:
        return dict.fromkeys((*span.held_ns, "busy"), 0.0)
    shares = {name: held_ns / span.busy_ns for name, held_ns in span.held_ns.items()}
    return shares | {"busy": span.busy_ns / ((span.end_ns - span.begin_ns) * span.num_used)}


def bottleneck(material: Material) -> str:
    """Return the limit that held requests back, by the first rule that holds.

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
