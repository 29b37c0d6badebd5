"""The twin: one replica that serves a workload in virtual time, in plain Python, for comparing with the engine.

`simulate` returns the recording that `support.recording.record` returns, as far as the two have it in common.
"""
from collections import deque
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from math import floor

from oracle.scheduler import Request, Scheduler
from simulator.domain import records
from simulator.domain.host import HostParameters


@dataclass
class Recording:
    requests: object
    steps: list = field(default_factory=list)
    token_times: dict = field(default_factory=dict)


def simulate(workload, parameters, prices, *, host=None, layers=(1,), rows=None, max_steps=None, details=True,
             **cache):
    """Serve the requests `rows` (default: all) of a workload on one replica with the `linear` backend.

    Parameters
    ----------
    prices : LinearParameters
    host : HostParameters, optional
    layers : sequence of int
        Of each pipeline stage: its share of the duration. As many iterations are in flight, with async scheduling one
        more.
    max_steps : int, optional
        Stop after this many decisions that compute something, for runs that never end.
    details : bool
        Record block tables and free queues too.
    cache : num_gpu_blocks, block_size, enable_prefix_caching, max_model_len, layer_groups.
    """
    replica = Replica(workload, parameters, prices, host or HostParameters(), cache)
    if len(layers) > 1:
        replica.depth, replica.layers, replica.free_at_ns = len(layers), layers, [0] * len(layers)
        if parameters.async_scheduling:
            replica.scheduler.stride = len(layers)
    replica.details = details
    replica.expect(range(len(workload)) if rows is None else rows)
    run = replica.run_with_batch_queue if replica.scheduler.stride else replica.run
    run(float("inf") if max_steps is None else max_steps)
    return replica.recording


class Replica:
    def __init__(self, workload, parameters, prices, host, cache):
        self.workload, self.prices, self.host = workload, prices, host
        self.scheduler = Scheduler(parameters, **cache)
        self.depth = 2 if parameters.async_scheduling else 1        # iterations decided but not ended
        self.recording = Recording(workload.requests.copy())
        self.requests = self.recording.requests
        # A running request computes at most max_model_len - 1 tokens; only one that prefills at once gets past that.
        self.longest_prompt = cache["max_model_len"] - parameters.enable_chunked_prefill
        self.details = True
        self.future = deque()                                       # (enqueued_ns, row), in that order
        self.now_ns = 0
        self.layers = (1,)                                          # of each pipeline stage
        self.free_at_ns = [0]                                       # when all decided iterations have left each stage

    def expect(self, rows):
        self.future.extend(sorted((self._enqueued_ns(row), row) for row in rows))

    def run(self, max_steps):
        """At one instant requests enter the queue first, then the replica acts, then clients give up."""
        in_flight, num_computing = deque(), 0
        while True:
            self._enqueue_arrived()
            self._give_up(before_ns=self.now_ns)
            step = self.scheduler.schedule()
            if step.scheduled or step.preempted:
                num_computing += bool(step.scheduled)
                if num_computing > max_steps:
                    return
                entry = self._record(step)
                if step.scheduled:
                    in_flight.append((step, entry, self._pass_stages(entry)))
                    if len(in_flight) < self.depth:
                        continue
                elif not in_flight:
                    continue
            if in_flight:
                step, entry, self.now_ns = in_flight.popleft()
                self._give_up(before_ns=self.now_ns)            # without the tokens that come now
                self._finish(step, entry)
            elif not self._skip_idle():
                return

    def run_with_batch_queue(self, max_steps):
        """Do the same with async scheduling and stages, as vLLM's `step_with_batch_queue`.

        In the queue are (step, recorded or None, when its tokens are back) of the last `stride` + 1 steps at most,
        those that compute nothing, too.
        """
        queue, num_computing, num_blank, stride = deque(), 0, 0, self.scheduler.stride
        while True:
            self._enqueue_arrived()
            self._give_up(before_ns=self.now_ns)
            if self.scheduler.requests and not num_blank > stride:
                step = self.scheduler.schedule()
                entry, ends_ns = None, self.now_ns
                if step.scheduled or step.preempted:
                    num_computing += bool(step.scheduled)
                    if num_computing > max_steps:
                        return
                    entry = self._record(step)
                if step.scheduled:
                    ends_ns = self._pass_stages(entry, self._tokens_back_ns(queue, stride))
                num_blank = 0 if entry else num_blank + 1
                queue.append((step, entry, ends_ns))
                if len(queue) <= stride:
                    continue
            if not queue:
                if not self._skip_idle():
                    return
                num_blank = 0
                continue
            step, entry, ends_ns = queue.popleft()
            self.now_ns = max(self.now_ns, ends_ns)
            if step.scheduled:
                num_blank = 0
                self._give_up(before_ns=self.now_ns)
                self._finish(step, entry)

    def _tokens_back_ns(self, queue, stride):
        """Return when the first stage has the tokens of the step `stride` before, if anybody goes on with one."""
        if len(queue) < stride:
            return 0
        step, _, ends_ns = queue[-stride]
        return ends_ns if step.feeds else 0

    def _skip_idle(self):
        """Move to the next thing that can change anything; False if there is none."""
        deadlines = [request.deadline_ns for request in self.scheduler.waiting if request.deadline_ns >= 0]
        if deadlines and min(deadlines) <= self.now_ns:
            self._give_up(before_ns=self.now_ns + 1)
            return True
        instants = deadlines + ([self.future[0][0]] if self.future else [])
        if instants:
            self.now_ns = max(self.now_ns, min(instants))
        return bool(instants)

    def _enqueued_ns(self, row):
        request = self.workload.requests[row]
        delay_us = self.host.queue_base_us + self.host.queue_per_prompt_token_us * int(request["prompt_tokens"])
        return int(request["arrival_ns"]) + nearest(delay_us * 1e3)

    def _enqueue_arrived(self):
        while self.future and self.future[0][0] <= self.now_ns:
            enqueued_ns, row = self.future.popleft()
            request = self._request(row)
            if 0 <= request.deadline_ns < enqueued_ns:
                status = records.TIMED_OUT
            elif request.num_prompt > self.longest_prompt:
                status = records.REJECTED
            elif not self.scheduler.cache.can_ever_hold(request.num_prompt):
                status = records.DROPPED
            else:
                status = records.WAITING
                self.requests["enqueued_ns"][row] = enqueued_ns
                self.scheduler.add(request)
            self.requests["status"][row] = status

    def _give_up(self, before_ns):
        late = [request for request in self.scheduler.requests.values() if 0 <= request.deadline_ns < before_ns]
        for request in sorted(late, key=lambda request: (request.deadline_ns, request.row)):
            self.requests["status"][request.row] = records.TIMED_OUT
            self.scheduler.abort(request)

    def _request(self, row):
        demand = self.workload.demands[row]
        first, count = int(demand["segments_begin"]), int(demand["num_segments"])
        segments = self.workload.segments[first:first + count].tolist()
        num_prompt = int(self.workload.requests["prompt_tokens"][row])
        tokens = [(stream, offset) for stream, length in segments or [(records.own_stream(row), num_prompt)]
                  for offset in range(length)]
        return Request(
            row=row, tokens=tokens, num_prompt=num_prompt, max_tokens=int(demand["max_tokens"]),
            stops_at=int(self.workload.outcomes["output_tokens"][row]), output_stream=records.output_stream(row),
            enqueued_ns=self._enqueued_ns(row), priority=int(demand["priority"]),
            tie_rank=int(demand["tie_rank"]), deadline_ns=self._deadline_ns(row))

    def _deadline_ns(self, row):
        """Return when a token must come back for the client to see it in time."""
        deadline_ns = int(self.workload.demands["deadline_ns"][row])
        if deadline_ns < 0:
            return deadline_ns
        arrival_ns = int(self.workload.requests["arrival_ns"][row])
        return max(deadline_ns - nearest(self.host.output_token_us * 1e3), arrival_ns)

    def _load(self, step):
        """Return what an iteration computes: the sums its duration depends on."""
        decode = sum(step.scheduled[row] for row in step.decoding)
        return {"sequences": len(step.scheduled), "prefill_tokens": sum(step.scheduled.values()) - decode,
                "decode_tokens": decode,
                "context_tokens": sum(step.before[row] + step.scheduled[row] for row in step.decoding)}

    def _price_ns(self, load):
        prices = self.prices
        return (prices.base_us * 1e3 + prices.per_sequence_us * 1e3 * load["sequences"]
                + prices.per_prefill_token_us * 1e3 * load["prefill_tokens"]
                + prices.per_decode_token_us * 1e3 * load["decode_tokens"]
                + prices.per_context_token_us * 1e3 * load["context_tokens"])

    def _pass_stages(self, entry, not_before_ns=0):
        """Queue an iteration behind the others in each stage; return when it leaves the last."""
        visits, ready_ns = [], max(self.now_ns, not_before_ns)
        for stage, duration_ns in enumerate(self._stage_durations_ns(entry["load"])):
            start_ns = max(ready_ns, self.free_at_ns[stage])
            ready_ns = self.free_at_ns[stage] = start_ns + duration_ns
            visits.append((start_ns, ready_ns))
        entry["stages"], entry["duration_ns"] = visits, ready_ns - visits[0][0]
        entry["begin_ns"] = visits[0][0]
        return ready_ns

    def _stage_durations_ns(self, load):
        """Divide the price by layers, host time in front; what is rounded are ends of stages."""
        ends_ns, so_far_ns = [0], self.host.iteration_us * 1e3
        for count in self.layers:
            so_far_ns += self._price_ns(load) * (count / sum(self.layers))
            ends_ns.append(max(nearest(so_far_ns), ends_ns[-1] + 1))
        return [end - start for start, end in pairwise(ends_ns)]

    def _record(self, step):
        scheduler, cache, requests = self.scheduler, self.scheduler.cache, self.requests
        for row, num_hit in step.hits.items():
            if requests["scheduled_ns"][row] < 0:
                requests["scheduled_ns"][row] = self.now_ns
                requests["cached_tokens"][row] = num_hit
            requests["status"][row] = records.RUNNING
        for row in step.preempted:
            requests["preemptions"][row] += 1
            requests["status"][row] = records.WAITING
        load = self._load(step)
        entry = {
            "t_ns": self.now_ns, "duration_ns": 0, "load": load,
            "scheduled": list(step.scheduled.items()), "hits": step.hits, "drafts": step.drafts,
            "preempted": step.preempted, "running": [request.row for request in scheduler.running],
            "waiting": [request.row for request in scheduler.waiting], "free_blocks": len(cache.free),
            "evicted": cache.evicted, "cached_hashes": len(cache.table)}
        if self.details:
            entry["free_queue"] = list(cache.free)
            entry["blocks"] = {request.row: deepcopy(request.blocks) for request in scheduler.running}
        self.recording.steps.append(entry)
        return entry

    def _finish(self, step, entry):
        brought, finished = self.scheduler.update(step)
        observed_ns = self.now_ns + nearest(self.host.output_token_us * 1e3)
        requests = self.requests
        for row, num_tokens in brought.items():
            if requests["first_token_ns"][row] < 0:
                requests["first_token_ns"][row] = observed_ns
            requests["output_tokens"][row] += num_tokens
            if num_tokens:
                self.recording.token_times.setdefault(row, []).extend([observed_ns] * num_tokens)
        for row in finished:
            requests["completed_ns"][row] = observed_ns
            requests["status"][row] = records.COMPLETED
        entry["finished"] = finished
        entry["free_blocks_end"] = len(self.scheduler.cache.free)
        if self.details:
            entry["free_queue_end"] = list(self.scheduler.cache.free)


def nearest(value):
    """Round to the nearest integer, halves away from zero (C's llround), for value >= 0."""
    return floor(value) + (value - floor(value) >= 0.5)
