"""What BLIS reports of a run, worked out from a run of ours.

BLIS adds up: E2E latency is TTFT and all gaps between tokens, and a gap is the time of one step. A request that gets no
turn in a step loses that time, and up to v0.7.10 one that starts over keeps its first TTFT with the gaps of its last
attempt. `left_us`, when the last token leaves the engine, is read from the log instead, and free of that.
"""
import numpy as np

from simulator.domain import records

PERCENTILES = (90, 95, 99)


class Results:
    """A finished run as BLIS would report it.

    result : simulator.results.result.Result, with token times.
    output_us : what every token takes on the host. completion_us : what the last one takes once more.
    """

    def __init__(self, result, output_us, completion_us):
        self._rows, self._steps = result.requests, result.iterations
        self._output_us, self._completion_us = output_us, completion_us
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
        return (self._rows["status"] != records.REJECTED) & (self._rows["status"] != records.DROPPED)

    def _request(self, row):
        it = self._rows[row]
        known = {"instance": f"instance_{it['replica']}", "preemptions": int(it["preemptions"]),
                 "scheduled_us": int(it["scheduled_ns"]) // 1000 if it["scheduled_ns"] >= 0 else None,
                 "ttft_us": 0.0, "e2e_us": 0.0, "itl_mean_us": 0.0, "left_us": None}
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
        return {
            "completed_requests": len(done), "preemption_count": int(self._rows["preemptions"].sum()),
            "timed_out_requests": int((status == records.TIMED_OUT).sum()),
            "dropped_unservable": int((status == records.DROPPED).sum()),
            "total_input_tokens": int(self._rows["prompt_tokens"][self._let_in()].sum()),
            "total_output_tokens": int(self._rows["output_tokens"][done].sum()),
            "vllm_estimated_duration_s": float((self._steps["start_ns"] + self._steps["duration_ns"]).max() / 1e9),
        } | (_statistics("ttft", [each["ttft_us"] for each in requests if each["ttft_us"] > 0])
             | _statistics("e2e", [each["e2e_us"] for each in requests if each["e2e_us"] > 0])
             | _statistics("itl", gaps_us))


def expected_requests(case):
    """Return what BLIS recorded of each request, as `Results.requests`, as far as its version writes it down."""
    return {name: _expected_request(case, name, each) for name, each in case.results.items()}


def _expected_request(case, name, recorded):
    ticks = recorded["schedule_ticks"]
    known = {"instance": recorded["instance"], "preemptions": max(len(ticks) - 1, 0),
             "scheduled_us": ticks[0] if ticks else None, "ttft_us": float(recorded["ttft_us"]),
             "e2e_us": float(recorded["e2e_us"]), "left_us": case.left_us.get(name)}
    return known | ({"itl_mean_us": float(recorded["itl_mean_us"])} if "itl_mean_us" in recorded else {})


def expected_aggregate(case):
    """Return what BLIS recorded of the whole run, as far as `Results.aggregate` knows of it."""
    recorded = dict(case.output["aggregate"])
    if not case.counts_outputs:
        del recorded["total_output_tokens"]
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
