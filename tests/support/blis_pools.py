"""What BLIS reports of a run with pools for prompts and for what follows them, worked out from a run of ours.

A request that is split is two to BLIS: `<id>_prefill`, which is complete with its prompt, and `<id>_decode`. Figures of
a replica are of these; those of the whole run are of the requests: TTFT ends with the first iteration of the second
part, E2E latency is the time to its scheduling and all its gaps.
"""
from functools import cached_property
from itertools import count

import numpy as np

from simulator.domain import records
from simulator.routing.python_router import PythonRouter
from support.blis_results import US, Results, _statistics

ROLES = {name: code for code, name in enumerate(records.LEG_ROLES)}


class OneRoundRobin(PythonRouter):
    """Round robin with one counter for all pools, as BLIS has one policy for them."""

    turns = count()

    def __init__(self, parameters, context):
        super().__init__(parameters, context)
        type(self).turns = count()

    def choose(self, request, now_ns):
        return next(self.turns) % len(self.states)


class PoolResults(Results):
    """See `Results`, whose `request` and `aggregate` know nothing of requests in two parts."""

    @cached_property
    def _legs(self):
        return {(int(leg["request"]), int(leg["role"])): leg for leg in self.result.legs}

    def is_split(self, row):
        return self.column("prefill_replica", -1)[row] >= 0

    def is_dropped(self, row):
        """Say whether a request was dropped between its parts: BLIS counts it as let in, and its latencies."""
        return (self.is_split(row) and self.rows["status"][row] == records.DROPPED
                and self.rows["prefill_done_ns"][row] >= 0)

    def gaps_us(self, row):
        if not self.is_split(row):
            return super().gaps_us(row)
        times_us, replica = self._token_us[row], self.rows["replica"][row]
        return [self._step_us[replica, end] + self._output_us for end in times_us[len(times_us) > 1:].tolist()]

    def reached(self):
        return super().reached() | np.array([self.is_dropped(row) for row in range(len(self.rows))], bool)

    def request(self, row):
        known, it = super().request(row), self.rows[row]
        if not self.is_split(row):
            return known
        decode = self._legs.get((row, ROLES["decode"]))
        known["decode_scheduled_us"] = int(decode["scheduled_ns"]) // US if decode is not None else None
        if self.is_dropped(row):
            known |= {"completed": True, "ttft_us": self._prefill_us(row),
                      "e2e_us": float(it["prefill_done_ns"] - it["arrival_ns"]) / US}
        return known

    def _completion(self, row, ttft_us):
        known = super()._completion(row, ttft_us)
        if not self.is_split(row):
            return known
        gaps_us, tokens = self.gaps_us(row), int(self.rows["output_tokens"][row])
        return known | {"e2e_us": ttft_us + sum(gaps_us[1:]) + self._completion_us,
                        "itl_mean_us": sum(gaps_us) / len(gaps_us),
                        "left_us": int(self._token_us[row][-1]) if tokens > 1 else known["left_us"]}

    def _prefill_us(self, row):
        """Return the TTFT of the first part: the iteration that completes it begins when it is done."""
        done_us, replica = int(self.rows["prefill_done_ns"][row]) // US, self.rows["prefill_replica"][row]
        end_us = next(end for (where, end), duration in self._step_us.items()
                      if where == replica and end - duration == done_us)
        return float(end_us + self._output_us - int(self.rows["arrival_ns"][row]) // US)

    # ---- the whole run, or one replica

    def aggregate(self, replica=None):
        if replica is not None:
            return self._of_replica(replica)
        found = super().aggregate()
        decoded = [each for row in np.flatnonzero(self.has(records.COMPLETED)) for each in self.gaps_us(row)]
        return found | _statistics("itl", decoded)

    def _parts(self, replica):
        """Yield what a replica did: of each request that came there (tokens of its prompt, figures, gaps)."""
        for row in np.flatnonzero(self.reached()):
            known, it = self.request(row), self.rows[row]
            if not self.is_split(row):
                if it["replica"] == replica:
                    yield int(it["prompt_tokens"]), known | {"tokens": int(it["output_tokens"])}, self.gaps_us(row)
                continue
            if it["prefill_replica"] == replica and it["prefill_done_ns"] >= 0:
                prefill_us = self._prefill_us(row)
                yield int(it["prompt_tokens"]), known | {
                    "completed": True, "ttft_us": prefill_us, "e2e_us": prefill_us, "tokens": 0}, []
            decode = self._legs.get((row, ROLES["decode"]))
            if decode is not None and decode["replica"] == replica:
                gaps_us = self.gaps_us(row)
                yield 0, known | {
                    "tokens": int(it["output_tokens"]), "ttft_us": 0.0, "e2e_us": sum(gaps_us) + self._completion_us,
                    "sched_delay_us": float(decode["scheduled_ns"] - it["arrival_ns"]) / US}, gaps_us

    def _of_replica(self, replica):
        parts = [*self._parts(replica)]
        completed = sum(each["completed"] for _, each, _ in parts)
        tokens = sum(each["tokens"] for _, each, _ in parts)
        steps = self._steps[self._steps["replica"] == replica]
        duration_s = min(int((steps["start_ns"] + steps["duration_ns"]).max(initial=0)) / 1e9, self._horizon_s)
        counts = {"completed_requests": completed, "still_queued": 0, "still_running": 0, "timed_out_requests": 0,
                  "dropped_unservable": 0, "length_capped_requests": 0}
        return counts | {
            "injected_requests": len(parts), "preemption_count": 0,
            "total_input_tokens": sum(prompt for prompt, _, _ in parts), "total_output_tokens": tokens,
            "vllm_estimated_duration_s": duration_s,
            "responses_per_sec": completed / duration_s if duration_s else 0.0,
            "tokens_per_sec": tokens / duration_s if duration_s else 0.0,
        } | self._latencies([each for _, each, _ in parts], [gap for _, _, gaps in parts for gap in gaps])

    # ---- what is printed

    def pool_lines(self):
        split = [row for row in range(len(self.rows)) if self.is_split(row)]
        moved = self.rows[self.rows["transfer_end_ns"] >= 0]
        durations_us = (moved["transfer_end_ns"] - moved["transfer_start_ns"]) / US
        prefill, decode, both = self._case.pools
        first, last = range(prefill + decode, prefill + decode + both), self.aggregate()["vllm_estimated_duration_s"]
        rates = [sum(self._of_replica(each)["completed_requests"] for each in (*own, *first)) / last
                 for own in (range(prefill), range(prefill, prefill + decode))]
        found = {"Disaggregated Requests": len(moved), "Prefill Throughput": rates[0], "Decode Throughput": rates[1],
                 "Load Imbalance Ratio": max(rates) / min(rates)}
        if self._case.is_on("pd-transfer-contention"):
            told = self.result.summary["kv_transfer"]
            found |= {"Peak Concurrent Transfers": told["peak_concurrent"],
                      "Mean Transfer Queue Depth": told["mean_depth_at_start"] or 0.0}
        lines = {("PD Metrics", name): value for name, value in found.items()}
        for name, values in (("Parent TTFT (us)", [self.request(row)["ttft_us"] for row in split]),
                             ("KV Transfer Duration (us)", durations_us)):
            lines |= {("PD Metrics", name, "mean"): float(np.mean(values))} | {
                ("PD Metrics", name, f"p{rank}"): float(np.percentile(values, rank)) for rank in (50, 95, 99)}
        return lines
