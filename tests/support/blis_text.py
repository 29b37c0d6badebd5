"""What BLIS prints of a run besides its figures, and the same of a run of ours.

Every printed number is compared, to half a unit of its last digit, but for `NOT_COMPARED`. Keys are paths: section,
then labels, then the field.
"""
import re

import numpy as np

from simulator.domain import records

NOT_COMPARED = {    # the beginning of a key, and why
    ("Anomaly Counters", "Priority Inversions"): "not the same from run to run of BLIS itself (specs/blis.md, F.3)",
    ("Fitness Evaluation",): "a formula over figures that are compared",
    ("KV Cache Metrics", "Cache Hit Rate"): "BLIS counts blocks as they are taken, ours tokens as they are looked up",
    ("PD Metrics", "Dropped at Decode KV"): "0 whatever was dropped",
    ("Per-Model Metrics",): "one model serves all",
}
VERDICTS = ("Goodput", "SLO", "Saturation")     # sections that begin so weigh latencies that are compared
# Of always-busiest: BLIS takes the least loaded for the best there, too; ours what the router goes by.
REGRETS = {("Trace Summary", "Mean Regret"), ("Trace Summary", "Max Regret")}
LOSSES = {      # what BLIS prints: what we call the causes
    "Rejected Requests (Admission)": ("admission",),
    "Rejected Requests (Routing)": ("no_replica",),
    "Gateway Queue Rejected": ("queue_full",),
    "Gateway Queue Shed": ("shed",),
    "Gateway Expired (TTL)": ("expired",),
    "Gateway Evicted (in-flight)": ("recalled",),
}
ONE_NUMBER = {"Gateway Queue Shed": ("queue_full", "shed")}     # of v0.7.1: refused and shed
LOSSES_OF_CLASS = ("admission", "shed", "expired", "recalled")


def printed(case):
    """Return {key: (number, half a unit of its last digit)} of what BLIS printed."""
    found, section, parent = {}, None, ()
    for line in case.output.get("text_sections", ()):
        title = re.fullmatch(r"=== (.*) ===", line)
        label, _, rest = line.strip().partition(":")
        indent = len(line) - len(line.lstrip())
        if title:
            section, parent = title[1], ()
        elif not rest.strip():
            parent = (label,)
        else:
            above = parent if parent and indent > (0 if parent == ("Target Distribution",) else 2) else ()
            found |= {(section, *above, label, *field): value for field, value in _numbers(rest)}
    left_out = [*NOT_COMPARED, *(REGRETS if case.settings["routing-policy"] == "always-busiest" else ())]
    return {key: value for key, value in found.items()
            if not key[0].startswith(VERDICTS) and not any(key[:len(each)] == each for each in left_out)}


def _numbers(text):
    """Yield (fields, (number, tolerance)) of `7`, `mean=1.5 p99=2.5 (n=3)` or `requests=3, tokens=4`."""
    pairs = re.findall(r"(\w+)=(-?[\d.]+)", text) or [("", text.split()[0])]
    for field, number in pairs:
        decimals = len(number.partition(".")[2])
        yield ((field,) if field else ()), (float(number), 0.5 * 10**-decimals * (decimals > 0) + 1e-9)


def expected_lines(case):
    """Return what is to be found: what was printed and, where the version prints all kinds, no losses of the others."""
    absent = {("Anomaly Counters", name): (0.0, 0.0) for name in LOSSES} if case.version == "head" else {}
    everything = absent | printed(case)
    return {} if case.held_back else everything


class Lines:
    """What BLIS would print of a run of ours; see `blis_results.Results`."""

    def __init__(self, results, case):
        self._results, self._case = results, case
        self._total = results.aggregate()

    def all(self):
        """Return {key: number}."""
        return self._anomalies() | self._preemptions() | self._classes() | self._tenants() | self._trace() | (
            self._sessions()) | self._results.pool_lines()

    def _anomalies(self):
        results, causes = self._results, LOSSES | (ONE_NUMBER if self._case.version == "v071" else {})
        counts = {line: int(results.lost_to(*causes[line]).sum()) for line in LOSSES}
        counts |= {"Dropped Unservable": self._total["dropped_unservable"], "Length-Capped Requests": 0,
                   "Timed Out Requests": self._total["timed_out_requests"], "HOL Blocking Events": self._crowded()}
        classes = results.label("slo_class", "standard")[results.lost_to(*LOSSES_OF_CLASS)]
        counts |= {f"Shed ({name})": int((classes == name).sum()) for name in set(classes.tolist())}
        return {("Anomaly Counters", name): count for name, count in counts.items()}

    def _crowded(self):
        """Return how many replicas have, over their steps, a queue more than twice as long as the mean of all."""
        steps, count = self._results.result.iterations, self._case.number("num-instances")
        queues = [steps["waiting"][steps["replica"] == i] for i in range(count)]
        means = np.array([queue.mean() if len(queue) else 0.0 for queue in queues])
        return int((means > 2 * means.mean()).sum()) if count > 1 else 0

    def _preemptions(self):
        done = self._total["completed_requests"]
        return {("KV Cache Metrics", "Preemption Rate"): self._total["preemption_count"] / done if done else 0.0,
                ("KV Cache Metrics", "KV Thrashing Rate"): self._thrashing()}

    def _thrashing(self):
        """Return what part of the blocks that came to a mirror had to go again.

        Of those that were moved, the part that came back at once; of a chain, of its reads those that were refused.
        """
        case = self._case
        tiers = self._results.result.kv_tiers if case.kv_offload or case.number("kv-cpu-blocks") else None
        if case.kv_offload:
            below = tiers[tiers["level"] > 0]
            return below["refusals"].sum() / max(below["refusals"].sum() + below["loads"].sum(), 1)
        went = "thrashed_chunks" if case.version == "v069" else "evicted_chunks"
        return 0.0 if tiers is None else tiers[went].sum() / max(tiers["stored_chunks"].sum(), 1)

    def _classes(self):
        results, found = self._results, {}
        rows, classes = np.flatnonzero(results.reached()), results.label("slo_class", "default")
        requests = [results.request(row) | {"class": classes[row]} for row in rows]
        for name in set(classes.tolist()):
            of_class = [each for each in requests if each["class"] == name]
            done = [each for each in of_class if each["completed"]]
            for line, values in (("TTFT", [each["ttft_us"] for each in of_class if each["ttft_us"] > 0]),
                                 ("ITL", [each["itl_mean_us"] for each in done]),
                                 ("E2E", [each["e2e_us"] for each in done])):
                found |= _distribution(("Per-SLO Metrics", name, line), values, (99,))
        return found

    def _tenants(self):
        results = self._results
        is_done = results.has(records.COMPLETED)
        tenants, tokens = results.label("tenant", "")[is_done], results.rows["output_tokens"][is_done].astype(float)
        sums = {name: float(tokens[tenants == name].sum()) for name in set(tenants.tolist())}
        found = {("Per-Tenant Metrics", name, "requests"): int((tenants == name).sum()) for name in sums}
        found |= {("Per-Tenant Metrics", name, "tokens"): total for name, total in sums.items()}
        totals = np.array([*sums.values()])
        squares = len(totals) * (totals ** 2).sum()
        return found | {("Per-Tenant Metrics", "Jain Fairness Index"): totals.sum() ** 2 / squares if squares else 1.0}

    def _trace(self):
        decisions = self._results.result.summary.get("decisions")
        if decisions is None:
            return {}
        refused = int(self._results.lost_to("admission").sum())
        found = {"Total Decisions": decisions["total"] + refused, "Admitted": decisions["total"], "Rejected": refused,
                 "Unique Targets": decisions["unique_targets"], "Mean Regret": decisions["mean_regret"],
                 "Max Regret": decisions["max_regret"]}
        return {("Trace Summary", name): value for name, value in found.items()} | {
            ("Trace Summary", "Target Distribution", f"instance_{i}"): count
            for i, count in enumerate(decisions["targets"])}

    def _sessions(self):
        rounds = self._case.rounds
        requests = {name: each for name, each in self._results.requests().items() if name in rounds}
        cold, warm = ([each["ttft_us"] / 1e3 for name, each in requests.items()
                       if (rounds[name][1] > 0) == is_warm and each["ttft_us"] > 0] for is_warm in (False, True))
        lengths = []
        for session in {session for session, _ in rounds.values()}:
            turns = {rounds[name][1]: each for name, each in requests.items() if rounds[name][0] == session}
            ends = [each["arrived_at_us"] + each["e2e_us"] for each in turns.values() if each["completed"]]
            if ends and 0 in turns:
                lengths.append((max(ends) - turns[0]["arrived_at_us"]) / 1e3)
        found = {("Session Metrics", "Sessions"): len({session for session, _ in rounds.values()})}
        for line, values in (("TTFT cold (round 0)", cold), ("TTFT warm (round≥1)", warm),
                             ("Session duration", lengths)):
            found |= _distribution(("Session Metrics", line), values, (50, 95, 99))
        return found


def _distribution(key, values, ranks):
    found = {(*key, "n"): len(values)}
    if values:
        found |= {(*key, "mean"): float(np.mean(values))}
        found |= {(*key, f"p{rank}"): float(np.percentile(values, rank)) for rank in ranks}
    return found


def line_differences(found, expected):
    """Yield (key, expected, found) of every number that is missing or differs in a printed digit."""
    for key, (value, tolerance) in expected.items():
        ours = found.get(key)
        if ours is None or not abs(ours - value) <= tolerance:
            yield "/".join(key), value, "not reported" if ours is None else ours
