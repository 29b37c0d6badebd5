"""What BLIS reports of a run in figures, worked out from a run of ours.

BLIS adds up: E2E latency is TTFT and all gaps between tokens, and a gap is the time of one step. A request that gets no
turn in a step loses that time, and up to v0.7.10 one that starts over keeps its first TTFT with the gaps of its last
attempt. `left_us`, when the last token leaves the engine, is read from the log instead, and free of that.

Every figure that BLIS wrote is compared, but for those in the `NOT_COMPARED_...` tables.
"""
import numpy as np

from simulator.domain import records

PERCENTILES = (90, 95, 99)
US = 1000                       # in nanoseconds

ANOTHER_ATTEMPT = "our results have the first scheduling of a request, BLIS the last one after a preemption"
NOT_COMPARED_OF_REQUEST = {"output": "what the trace asks for, whatever came of it",
                           "schedule_ticks": "its first and its number are compared as scheduled_us and preemptions"}
NOT_COMPARED_OF_RUN = {
    "instance_id": "the name of what is reported on",
    **dict.fromkeys(("goodput_rps", "slo_attainment", "per_class", "saturation"),
                    "a verdict on latencies that are compared"),
}


class Results:
    """A finished run as BLIS would report it.

    result : simulator.results.result.Result, with token times. experiment : its tables. case : what was recorded.
    """

    def __init__(self, result, experiment, case):
        self.result, self._case = result, case
        self.rows, self._steps, self._labels = result.requests, result.iterations, result.labels
        host = experiment["latency"]["host"]
        self._output_us, self._completion_us = (int(host.get(key, 0)) for key in ("output_token_us", "completion_us"))
        self._queue_us = (host.get("queue_base_us", 0.0), host.get("queue_per_prompt_token_us", 0.0))
        self._routing_ns = US * case.number("routing-latency")
        self._horizon_s = experiment["horizon_s"]
        steps_us = zip(self._steps["replica"].tolist(), (self._steps["start_ns"] // US).tolist(),
                       (self._steps["duration_ns"] // US).tolist(), strict=True)
        self._step_us = {(replica, start + duration): duration for replica, start, duration in steps_us}
        self._token_us = [self._token_times(result, row) for row in range(len(self.rows))]

    def _token_times(self, result, row):
        """Return when the tokens that a request kept left the engine: the last ones, if it had to start over."""
        offsets, times_ns = result.token_times
        count = self.rows["output_tokens"][row]
        return times_ns[offsets[row + 1] - count:offsets[row + 1]] // US - self._output_us * np.arange(1, count + 1)

    def gaps_us(self, row):
        """Return the gaps between the tokens of a request."""
        replica = self.rows["replica"][row]
        return [self._step_us[replica, end] + self._output_us for end in self._token_us[row][1:].tolist()]

    def has(self, *status):
        """Return which rows ended so."""
        return np.isin(self.rows["status"], status)

    def reached(self):
        """Return which rows reached the queue of a replica, or are on the way there."""
        return (self.rows["replica"] >= 0) & ~self.has(records.DROPPED)

    def column(self, name, default):
        """Return a column that not every run has."""
        return self.rows[name] if name in self.rows.dtype.names else np.full(len(self.rows), default)

    def label(self, name, unnamed):
        """Return the label of each request."""
        return np.array([*self._labels.get(name, ()), unnamed], object)[self.column(name, -1)]

    def lost_to(self, *causes):
        """Return which rows did not get through, by cause."""
        return np.isin(self.column("cause", 0), [records.CAUSE_NAMES.index(cause) for cause in causes])

    # ---- requests

    def requests(self):
        """Return {id: what is known of the request}, those that were let in; times in microseconds."""
        return {str(self.rows["request_id"][row]): self.request(row) for row in np.flatnonzero(self.reached())}

    def request(self, row):
        """Return what is known of a request, under the names of `expected_requests`."""
        it = self.rows[row]
        is_complete = it["status"] == records.COMPLETED
        known = {"instance": f"instance_{it['replica']}", "preemptions": int(it["preemptions"]),
                 "scheduled_us": int(it["scheduled_ns"]) // US if it["scheduled_ns"] >= 0 else None,
                 "arrived_at_us": int(it["arrival_ns"]) // US, "input": int(it["prompt_tokens"]),
                 "ttft_us": 0.0, "e2e_us": 0.0, "itl_mean_us": 0.0, "left_us": None, "gateway_us": 0.0,
                 "sched_delay_us": 0.0, "completed": bool(is_complete),
                 "length_capped": False}        # nothing in a replay is: its lengths are known (specs/blis.md, B.2)
        if self.column("dispatched_ns", -1)[row] >= 0 and self._case.is_on("flow-control") and it["admitted_ns"] > 0:
            known["gateway_us"] = float(it["dispatched_ns"] - self._routing_ns - it["admitted_ns"]) / US
        if it["scheduled_ns"] >= 0:
            known["sched_delay_us"] = float(it["scheduled_ns"] - it["arrival_ns"]) / US
        if it["first_token_ns"] >= 0:
            known["ttft_us"] = float(it["first_token_ns"] - it["arrival_ns"]) / US
        if is_complete:
            known |= self._completion(row, known["ttft_us"])
        return known

    def _completion(self, row, ttft_us):
        tokens, gaps_us = int(self.rows["output_tokens"][row]), sum(self.gaps_us(row))
        completion_us = self._completion_us if tokens > 0 else 0
        left_us = int(self.rows["completed_ns"][row]) // US - max(tokens, 1) * self._output_us - completion_us
        return {"e2e_us": ttft_us + gaps_us + completion_us, "itl_mean_us": gaps_us / max(tokens - 1, 1),
                "left_us": left_us}

    def pool_lines(self):
        """Return what is printed of pools; see `blis_pools.PoolResults`."""
        return {}

    # ---- the whole run, or one replica

    def aggregate(self, replica=None):
        """Return the numbers of the whole run, or of one replica, under BLIS's names."""
        here = self.rows["replica"] >= 0 if replica is None else self.rows["replica"] == replica
        at_replica, done = self.reached() & here, np.flatnonzero(self.has(records.COMPLETED) & here)
        requests = [self.request(row) for row in np.flatnonzero(at_replica)]
        counts = {
            "completed_requests": len(done), "still_queued": int((self.has(records.WAITING) & here).sum()),
            "still_running": int((self.has(records.RUNNING) & here).sum()),
            "timed_out_requests": int((self.has(records.TIMED_OUT) & here).sum()),
            "dropped_unservable": int((self.has(records.DROPPED) & here).sum())}
        duration_s, tokens = self._duration_s(here), int(self.rows["output_tokens"][done].sum())
        return counts | {
            "injected_requests": sum(counts.values()), "length_capped_requests": 0,
            "preemption_count": int(self.rows["preemptions"][here].sum()),
            "kv_allocation_failures": self.result.summary["kv_allocation_failures"],    # of all: only that is compared
            "total_input_tokens": int(self.rows["prompt_tokens"][at_replica].sum()), "total_output_tokens": tokens,
            "vllm_estimated_duration_s": duration_s,
            "responses_per_sec": len(done) / duration_s if duration_s else 0.0,
            "tokens_per_sec": tokens / duration_s if duration_s else 0.0,
        } | self._latencies(requests, [gap for row in done for gap in self.gaps_us(row)]) | self._adapters(
            at_replica, duration_s)

    def _adapters(self, is_here, duration_s):
        """Return what came of the requests with each LoRA adapter; {}: there are none."""
        found = {}
        for name in self._labels.get("adapter", ()):
            mine = is_here & (self.label("adapter", None) == name)
            ttft_us = [self.request(row)["ttft_us"] for row in np.flatnonzero(mine)]
            if not ttft_us:
                continue
            found |= {f"{name} ttft_p{rank}_us": float(np.percentile(ttft_us, rank)) for rank in (50, 99)}
            found[f"{name} throughput_tok_per_s"] = float(self.rows["output_tokens"][mine].sum()) / duration_s
        return found

    def _latencies(self, requests, gaps_us):
        """Return means and percentiles; all are 0 where nothing completed."""
        if not any(each["completed"] for each in requests):
            requests = gaps_us = []
        delays_us = [each["sched_delay_us"] for each in requests if each["scheduled_us"] is not None]
        return (_statistics("ttft", [each["ttft_us"] for each in requests if each["ttft_us"] > 0])
                | _statistics("e2e", [each["e2e_us"] for each in requests if each["e2e_us"] > 0])
                | _statistics("itl", gaps_us)
                | {"scheduling_delay_p99_ms": _statistics("delay", delays_us)["delay_p99_ms"]})

    def _duration_s(self, here):
        """Return when the last thing happened: a step's end, a request that queues, a time-out; at most the horizon."""
        steps = self._steps if here.all() else self._steps[np.isin(
            self._steps["replica"], np.unique(self.rows["replica"][here]))]
        base_us, per_token_us = self._queue_us
        queued_us = np.floor(base_us + per_token_us * self.rows["prompt_tokens"][here])
        sent_ns = np.maximum(self.rows["arrival_ns"], self.column("dispatched_ns", -1))[here]
        ends_ns = [(steps["start_ns"] + steps["duration_ns"]).max(initial=0),
                   (sent_ns + US * queued_us.astype(np.int64)).max(initial=0),
                   self.rows["completed_ns"][self.has(records.TIMED_OUT) & here].max(initial=0)]
        return min(max(map(int, ends_ns)) / 1e9, self._horizon_s)


def expected_requests(case):
    """Return what BLIS recorded of each request, under the names of `Results.request`."""
    return {name: _expected_request(case, name, each)
            for name, each in case.results.items() if name not in case.held_back}


def _expected_request(case, name, recorded):
    ticks = recorded["schedule_ticks"]
    known = {"preemptions": max(len(ticks) - 1, 0), "scheduled_us": ticks[0] if ticks else None,
             "left_us": case.left_us.get(name)}
    if "gateway_delay_ms" in recorded:
        known["gateway_us"] = recorded["gateway_delay_ms"] * US
    known |= {key: value for key, value in recorded.items()
              if key not in NOT_COMPARED_OF_REQUEST and key not in ("id", "gateway_delay_ms")}
    if len(ticks) > 1:
        known.pop("sched_delay_us", None)               # ANOTHER_ATTEMPT
    if (name, "prefill") in case.legs_scheduled_us:
        known["scheduled_us"] = case.legs_scheduled_us[name, "prefill"]
        known["decode_scheduled_us"] = case.legs_scheduled_us.get((name, "decode"))
        if known["decode_scheduled_us"] is None:
            del known["instance"]       # it was dropped; which replica had no room for it is not in our results
    return known


def expected_aggregate(case, recorded):
    """Return what BLIS recorded of the whole run, or of one replica, as `Results.aggregate`."""
    if case.held_back:              # not all of it runs
        return {}
    known = {key: value for key, value in recorded.items() if key not in (*NOT_COMPARED_OF_RUN, "adapters")}
    if recorded["instance_id"] == "cluster":
        known.setdefault("kv_allocation_failures", 0)
    else:
        known.pop("kv_allocation_failures", None)
    known |= {f"{name} {key}": value for name, figures in recorded.get("adapters", {}).items()
              for key, value in figures.items() if key not in ("load_count", "eviction_count")}   # /replicas have them
    if recorded["preemption_count"]:
        del known["scheduling_delay_p99_ms"]            # ANOTHER_ATTEMPT
    if case.version in ("v071", "v069"):    # leave out first tokens, and count again what is done again
        known.pop("total_output_tokens", None)
        known.pop("tokens_per_sec", None)
    return known


def differences(found, expected, absolute, relative=0.0):
    """Yield (key, expected, found) of every expected key that is missing or differs by more than a tolerance."""
    for key, value in expected.items():
        ours = found.get(key, "not reported")
        if value == ours:
            continue
        are_numbers = all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in (value, ours))
        if not are_numbers or not abs(value - ours) <= absolute + relative * abs(value):
            yield key, value, ours


def _statistics(name, values_us):
    """Return mean and percentiles in ms of whole microseconds, whose sum is exact."""
    if not len(values_us):
        return dict.fromkeys([f"{name}_mean_ms", *(f"{name}_p{rank}_ms" for rank in PERCENTILES)], 0)
    return {f"{name}_mean_ms": sum(values_us) / len(values_us) / 1000} | {
        f"{name}_p{rank}_ms": float(np.percentile(values_us, rank)) / 1000 for rank in PERCENTILES}
