"""What BLIS reports of a run, worked out from a run of ours.

BLIS adds up: E2E latency is TTFT and all gaps between tokens, and a gap is the time of one step. A request that gets no
turn in a step loses that time, and up to v0.7.10 one that starts over keeps its first TTFT with the gaps of its last
attempt. `left_us`, when the last token leaves the engine, is read from the log instead, and free of that.
"""
import re

import numpy as np

from simulator.domain import records
from simulator.domain.slo_classes import UNLABELLED

PERCENTILES = (90, 95, 99)
LOSSES = {      # what BLIS prints: what we call the causes
    "Rejected Requests (Admission)": ("admission",),
    "Gateway Queue Rejected": ("queue_full",),
    "Gateway Queue Shed": ("queue_full", "shed"),       # v0.7.1, which counts both as one
    "Gateway Expired (TTL)": ("expired",),
    "Gateway Evicted (in-flight)": ("recalled",),
}
LOSSES_OF_CLASS = ("admission", "shed", "expired", "recalled")


class Results:
    """A finished run as BLIS would report it.

    result : simulator.results.result.Result, with token times.
    host : [latency.host] of the experiment: what every token takes on the host, and the last one once more.
    """

    def __init__(self, result, host):
        self._rows, self._steps, self._labels = result.requests, result.iterations, result.labels
        self._output_us, self._completion_us = (int(host.get(key, 0)) for key in ("output_token_us", "completion_us"))
        steps_us = zip(self._steps["replica"].tolist(), (self._steps["start_ns"] // 1000).tolist(),
                       (self._steps["duration_ns"] // 1000).tolist(), strict=True)
        self._step_us = {(replica, start + duration): duration for replica, start, duration in steps_us}
        self._token_us = [self._token_times(result, row) for row in range(len(self._rows))]

    def _token_times(self, result, row):
        """Return when the tokens that a request kept left the engine: the last ones, if it had to start over."""
        offsets, times_ns = result.token_times
        count = self._rows["output_tokens"][row]
        return times_ns[offsets[row + 1] - count:offsets[row + 1]] // 1000 - self._output_us * np.arange(1, count + 1)

    def _gaps_us(self, row):
        replica = self._rows["replica"][row]
        return [self._step_us[replica, end] + self._output_us for end in self._token_us[row][1:].tolist()]

    def requests(self):
        """Return {id: what is known of the request}, those that were let in; times in microseconds."""
        return {str(self._rows["request_id"][row]): self._request(row) for row in np.flatnonzero(self._let_in())}

    def _let_in(self):
        return (self._rows["replica"] >= 0) & (self._rows["status"] != records.DROPPED)

    def _request(self, row):
        it = self._rows[row]
        known = {"instance": f"instance_{it['replica']}", "preemptions": int(it["preemptions"]),
                 "scheduled_us": int(it["scheduled_ns"]) // 1000 if it["scheduled_ns"] >= 0 else None,
                 "ttft_us": 0.0, "e2e_us": 0.0, "itl_mean_us": 0.0, "left_us": None}
        if "dispatched_ns" in self._rows.dtype.names:
            known["gateway_us"] = float(it["dispatched_ns"] - it["admitted_ns"]) / 1000
        if it["first_token_ns"] >= 0:
            known["ttft_us"] = float(it["first_token_ns"] - it["arrival_ns"]) / 1000
        if it["status"] == records.COMPLETED:
            gaps_us, keeps_some = sum(self._gaps_us(row)), it["output_tokens"] > 0
            known["e2e_us"] = known["ttft_us"] + gaps_us + (self._completion_us if keeps_some else 0)
            known["itl_mean_us"] = gaps_us / max(int(it["output_tokens"]) - 1, 1)
            host_us = max(int(it["output_tokens"]), 1) * self._output_us + (self._completion_us if keeps_some else 0)
            known["left_us"] = int(it["completed_ns"]) // 1000 - host_us
        return known

    def aggregate(self):
        """Return the numbers of the whole run, under BLIS's names."""
        status, requests = self._rows["status"], self.requests().values()
        done = np.flatnonzero(status == records.COMPLETED)
        gaps_us = [gap for row in done for gap in self._gaps_us(row)]
        ends_ns = self._steps["start_ns"] + self._steps["duration_ns"]
        return {
            "completed_requests": len(done), "preemption_count": int(self._rows["preemptions"].sum()),
            "timed_out_requests": int((status == records.TIMED_OUT).sum()),
            "dropped_unservable": int((status == records.DROPPED).sum()),
            "total_input_tokens": int(self._rows["prompt_tokens"][self._let_in()].sum()),
            "total_output_tokens": int(self._rows["output_tokens"][done].sum()),
            "vllm_estimated_duration_s": float(ends_ns.max(initial=0) / 1e9),
        } | (_statistics("ttft", [each["ttft_us"] for each in requests if each["ttft_us"] > 0])
             | _statistics("e2e", [each["e2e_us"] for each in requests if each["e2e_us"] > 0])
             | _statistics("itl", gaps_us))

    def losses(self):
        """Return how many requests did not get through, by BLIS's name for the cause, and by SLO class."""
        if "cause" not in self._rows.dtype.names:
            return dict.fromkeys(LOSSES, 0)
        lost = {cause: self._rows["cause"] == code for code, cause in enumerate(records.CAUSE_NAMES)}
        counts = {line: sum(int(lost[cause].sum()) for cause in causes) for line, causes in LOSSES.items()}
        classes = np.array([*self._labels.get("slo_class", ()), UNLABELLED])[self._rows["slo_class"]]
        of_class = classes[np.any([lost[cause] for cause in LOSSES_OF_CLASS], axis=0)]
        return counts | {f"Shed ({name})": int((of_class == name).sum()) for name in set(classes.tolist())}


def expected_losses(case):
    """Return what BLIS printed of `Results.losses`; it prints no zeros of the gateway queue and of classes."""
    found = (re.fullmatch(r"\s*([^:]+): (\d+)", line) for line in case.output["text_sections"])
    counts = {each[1]: int(each[2]) for each in found if each}
    return {name: count for name, count in counts.items() if name in LOSSES or name.startswith("Shed (")}


def expected_requests(case):
    """Return what BLIS recorded of each request, as `Results.requests`, as far as its version writes it down."""
    return {name: _expected_request(case, name, each)
            for name, each in case.results.items() if name not in case.held_back}


def _expected_request(case, name, recorded):
    ticks = recorded["schedule_ticks"]
    known = {"instance": recorded["instance"], "preemptions": max(len(ticks) - 1, 0),
             "scheduled_us": ticks[0] if ticks else None, "ttft_us": float(recorded["ttft_us"]),
             "e2e_us": float(recorded["e2e_us"]), "left_us": case.left_us.get(name)}
    if "itl_mean_us" in recorded:
        known["itl_mean_us"] = float(recorded["itl_mean_us"])
    if "gateway_delay_ms" in recorded:
        known["gateway_us"] = recorded["gateway_delay_ms"] * 1000
    return known


def expected_aggregate(case):
    """Return what BLIS recorded of the whole run, as far as `Results.aggregate` knows of it; {}: not all of it runs."""
    recorded = {} if case.held_back else dict(case.output["aggregate"])
    if not case.counts_outputs:
        recorded.pop("total_output_tokens", None)
    return recorded


def differences(found, expected, tolerance):
    """Yield (key, expected, found) of keys of both whose numbers differ by more than `tolerance`."""
    for key in found.keys() & expected.keys():
        both = expected[key], found[key]
        if both[0] != both[1] and (None in both or isinstance(both[0], str) or abs(both[0] - both[1]) > tolerance):
            yield key, *both


def _statistics(name, values_us):
    values_ms = np.sort(np.asarray(values_us, dtype=float)) / 1000
    if not len(values_ms):
        return {}
    return {f"{name}_mean_ms": float(values_ms.mean())} | {
        f"{name}_p{rank}_ms": float(np.percentile(values_ms, rank)) for rank in PERCENTILES}
