"""The metrics of vLLM 0.33, by replica, and those of the simulation itself.

Source: vLLM 0.33.0, v1/metrics/loggers.py and buckets.py: names, types, bounds, and when each is observed. Durations
are simulated seconds. Steps without output are not in iteration_tokens_total.
"""
import time
from collections import Counter
from collections.abc import Callable

import numpy as np

from simulator.domain import records
from simulator.live.clock import LAG_BOUNDS_NS
from simulator.live.exposition import Histogram, Page
from simulator.live.fleet import LiveFleet, Message
from simulator.live.service import Service

FIRST_TOKEN_S = (
    .001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1., 2.5, 5., 7.5, 10., 20., 40., 80., 160., 640., 2560.)
TOKEN_S = (.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1., 2.5, 5., 7.5, 10., 20., 40., 80.)
REQUEST_S = (.3, .5, .8, 1., 1.5, 2., 2.5, 5., 10., 15., 20., 30., 40., 50., 60., 120., 240., 480., 960., 1920., 7680.)
PREEMPTIONS = (1., 2., 3., 4., 5., 10., 20.)
STEP_TOKENS = (1., 8., 16., 32., 64., 128., 256., 512., 1024., 2048., 4096., 8192., 16384.)
CHOICES = (1., 2., 5., 10., 20.)
REASONS = ("stop", "length", "abort", "error", "repetition")
SLEEP_STATES = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
HISTOGRAMS = {      # name -> meaning, bounds; None: 1, 2, 5, 10, ... up to max_model_len
    "time_to_first_token_seconds": ("Time to first token in seconds.", FIRST_TOKEN_S),
    "inter_token_latency_seconds": ("Inter-token latency in seconds.", TOKEN_S),
    "request_time_per_output_token_seconds": ("Time per output token of a request in seconds.", TOKEN_S),
    "e2e_request_latency_seconds": ("End-to-end latency of a request in seconds.", REQUEST_S),
    "request_queue_time_seconds": ("Time of a request in the waiting queue in seconds.", REQUEST_S),
    "request_inference_time_seconds": ("Time of a request from its schedule to its last token in seconds.", REQUEST_S),
    "request_prefill_time_seconds": ("Time of a request from its schedule to its first token in seconds.", REQUEST_S),
    "request_decode_time_seconds": ("Time of a request from its first token to its last in seconds.", REQUEST_S),
    "request_num_preemptions": ("Preemptions of a request.", PREEMPTIONS),
    "request_prompt_tokens": ("Prompt tokens of a request.", None),
    "request_generation_tokens": ("Generated tokens of a request.", None),
    "request_max_num_generation_tokens": ("Most generated tokens of the answers to a request.", None),
    "request_params_n": ("n of a request.", CHOICES),
    "request_params_max_tokens": ("max_tokens of a request.", None),
    "iteration_tokens_total": ("Tokens of an engine step.", STEP_TOKENS),
    "request_prefill_kv_computed_tokens": ("Prompt tokens of a request that were computed.", None),
}


def token_bounds(max_model_len: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, 20, 50, ... up to the longest text."""
    steps = (step * 10**power for power in range(11) for step in (1, 2, 5))
    return tuple(float(step) for step in steps if step <= max_model_len)


class Siblings:
    """The answers to one prompt; count : how many."""

    def __init__(self, count: int):
        self.count = self.left = count
        self.most_tokens = 0


class ReplicaTally:
    """News for clients of one replica, counted.

    histograms : as of `Tally`.
    """

    def __init__(self, max_model_len: int, histograms: dict):
        self.histograms = {name: Histogram(bounds or token_bounds(max_model_len))
                           for name, (_, bounds) in histograms.items()}
        self.prompt_tokens = self.generation_tokens = self.ended_prompt_tokens = self.ended_generation_tokens = 0
        self.ended = dict.fromkeys(REASONS, 0)
        self._second, self._in_second, self._in_last = -1, 0, 0
        self._step_ns, self._step_tokens = -1, 0

    def note_step(self, tokens: int, time_ns: int) -> None:
        """Take note of tokens of the step that ends at an instant."""
        if time_ns != self._step_ns:
            self.end_step()
        self._step_ns, self._step_tokens = time_ns, self._step_tokens + tokens

    def end_step(self) -> None:
        """Take note that all tokens of the last step are known."""
        if self._step_tokens:
            self.observe("iteration_tokens_total", self._step_tokens)
        self._step_tokens = 0

    def observe(self, name: str, value: float) -> None:
        """Take note of a value, if the engine has a histogram of it."""
        if (found := self.histograms.get(name)) is not None:
            found.add(value)

    def count(self, tokens: int, time_ns: int) -> None:
        """Count generated tokens."""
        self.generation_tokens += tokens
        self._turn_to(time_ns)
        self._in_second += tokens

    def tokens_per_s(self, now_ns: int) -> int:
        """Return the tokens of the last whole second."""
        self._turn_to(now_ns)
        return self._in_last

    def _turn_to(self, time_ns: int) -> None:
        second = time_ns // 10**9
        if second > self._second:
            self._in_last = self._in_second if second == self._second + 1 else 0
            self._second, self._in_second = second, 0


class Tally:
    """Counts of all news, by replica; `note` is called with each.

    histograms : observation -> meaning, and bounds; None: those of token counts. speed : returns simulated seconds a
    second of the durations that are counted.
    """

    def __init__(self, fleet: LiveFleet, histograms: dict = HISTOGRAMS, speed: Callable[[], float] = lambda: 1.0):
        self._fleet, self._last_ns, self._speed = fleet, {}, speed
        self._siblings: dict[int, Siblings] = {}
        self.replicas = [ReplicaTally(fleet.max_model_len, histograms) for _ in fleet.cluster.replicas]

    def join(self, row: int, siblings: Siblings) -> None:
        """Let a request be one of several answers to its prompt."""
        self._siblings[row] = siblings

    def note(self, message: Message) -> None:
        """Take note of news."""
        row = self._fleet.workload.requests[message.row]
        if row["replica"] < 0:
            return
        tally = self.replicas[row["replica"]]
        if message.tokens == 0:
            self._end(tally, message, row)
            return
        tally.count(message.tokens, message.time_ns)
        before_ns = self._last_ns.get(message.row)
        tally.note_step(message.tokens + (int(row["prompt_tokens"]) if before_ns is None else 0), message.time_ns)
        self._last_ns[message.row] = message.time_ns
        if before_ns is None:
            tally.prompt_tokens += int(row["prompt_tokens"])
            tally.observe("time_to_first_token_seconds", self._seconds(message.time_ns - int(row["arrival_ns"])))
        else:
            tally.observe("inter_token_latency_seconds", self._seconds(message.time_ns - before_ns))

    def _seconds(self, duration_ns: int) -> float:
        return duration_ns / 1e9 / self._speed()

    def _end(self, tally: ReplicaTally, message: Message, row) -> None:
        last_ns, add = self._last_ns.pop(message.row, None), {}
        most = int(self._fleet.workload.demands["max_tokens"][message.row])
        tally.ended[_reason(message.status, int(row["output_tokens"]), most)] += 1
        tally.ended_prompt_tokens += int(row["prompt_tokens"])
        tally.ended_generation_tokens += int(row["output_tokens"])
        add["e2e_request_latency_seconds"] = self._seconds(message.time_ns - int(row["arrival_ns"]))
        add["request_num_preemptions"] = int(row["preemptions"])
        add["request_prompt_tokens"] = int(row["prompt_tokens"])
        add["request_generation_tokens"] = int(row["output_tokens"])
        add["request_params_max_tokens"] = most
        if last_ns is not None:
            scheduled_ns, first_ns = int(row["scheduled_ns"]), int(row["first_token_ns"])
            add["request_queue_time_seconds"] = self._seconds(scheduled_ns - int(row["enqueued_ns"]))
            add["request_prefill_time_seconds"] = self._seconds(first_ns - scheduled_ns)
            add["request_decode_time_seconds"] = self._seconds(last_ns - first_ns)
            add["request_inference_time_seconds"] = self._seconds(last_ns - scheduled_ns)
            add["request_prefill_kv_computed_tokens"] = int(row["prompt_tokens"]) - int(row["cached_tokens"])
            if row["output_tokens"] > 1:
                add["request_time_per_output_token_seconds"] = self._seconds(last_ns - first_ns) / (
                    int(row["output_tokens"]) - 1)
        siblings = self._siblings.pop(message.row, None) or Siblings(1)
        siblings.left, siblings.most_tokens = siblings.left - 1, max(siblings.most_tokens, int(row["output_tokens"]))
        if siblings.left == 0:
            add["request_params_n"] = siblings.count
            add["request_max_num_generation_tokens"] = siblings.most_tokens
        for name, value in add.items():
            tally.observe(name, float(value))


def _reason(status: int, tokens: int, most: int) -> str:
    if status == records.COMPLETED:
        return "length" if tokens >= most else "stop"
    return "abort" if status == records.TIMED_OUT else "error"


def loads(fleet: LiveFleet) -> list[dict]:
    """Return the state of each replica.

    Requests running and waiting, and the share of KV blocks in use.
    """
    found = fleet.workload.requests[fleet.open_rows()]
    replicas = fleet.cluster.replicas
    counts = [np.bincount(found["replica"][(found["status"] == status) & (found["replica"] >= 0)],
                          minlength=len(replicas)).tolist() for status in (records.RUNNING, records.WAITING)]
    return [{"name": f"replica-{replica.index}", "running": running, "waiting": waiting,
             "kv_cache_usage": 1 - replica.rank.kv.free_blocks / replica.rank.kv.num_blocks}
            for replica, running, waiting in zip(replicas, *counts, strict=True)]


def page(service: Service, tally: Tally, model: str, only: slice, is_full: bool = True) -> Page:
    """Return the page of /metrics.

    only : the replicas that are shown. is_full : all families; False: the seven that gateways read.
    """
    made, replicas, states = Page(), service.fleet.cluster.replicas[only], loads(service.fleet)[only]
    tallies = tally.replicas[only]
    labels = [{"model_name": model, "engine": str(i)} for i in range(len(replicas))]

    def family(name, kind, meaning, values):
        made.family(f"vllm:{name}", kind, meaning, zip(labels, values, strict=True))

    family("num_requests_running", "gauge", "Requests in execution batches.", [each["running"] for each in states])
    family("num_requests_waiting", "gauge", "Requests that wait.", [each["waiting"] for each in states])
    family("kv_cache_usage_perc", "gauge", "KV cache usage; 1 means 100 percent.",
           [each["kv_cache_usage"] for each in states])
    schedulers = [replica.rank.scheduler for replica in replicas]
    for name, meaning, values in (
            ("num_preemptions", "Preemptions.", [each.preemptions for each in schedulers]),
            ("prefix_cache_queries", "Tokens looked up in the prefix cache.",
             [each.prefix_query_tokens for each in schedulers]),
            ("prefix_cache_hits", "Tokens found in the prefix cache.",
             [each.prefix_hit_tokens for each in schedulers])):
        family(f"{name}_total", "counter", meaning, values)
    made.family("vllm:cache_config_info", "gauge", "Information on the KV cache.", [
        ({"block_size": str(replica.rank.kv.block_size), "num_gpu_blocks": str(replica.rank.kv.num_blocks),
          "engine": str(i)}, 1) for i, replica in enumerate(replicas)])
    add_adapters(made, service.fleet, only)
    if not is_full:
        return made
    made.family("vllm:engine_sleep_state", "gauge", "Whether the engine sleeps.", [
        (each | {"sleep_state": state}, value) for each in labels for state, value in SLEEP_STATES.items()])
    family("prompt_tokens_total", "counter", "Prefill tokens processed.", [each.prompt_tokens for each in tallies])
    family("generation_tokens_total", "counter", "Generation tokens processed.",
           [each.generation_tokens for each in tallies])
    made.family("vllm:request_success_total", "counter", "Requests that ended.", [
        (labels[i] | {"finished_reason": reason}, each.ended[reason])
        for i, each in enumerate(tallies) for reason in REASONS])
    for each in tallies:
        each.end_step()
    for name, (meaning, _) in HISTOGRAMS.items():
        family(name, "histogram", meaning, [each.histograms[name] for each in tallies])
    return made


def add_adapters(made: Page, fleet: LiveFleet, only: slice) -> None:
    """Add the adapters of running and of waiting requests, if any can be loaded."""
    rooms = fleet.adapter_room[only]
    rows = fleet.open_rows()
    requests, codes = fleet.workload.requests[rows], fleet.workload.demands["adapter"][rows]
    names, samples = fleet.labels.names.get("adapter", ()), []
    for room in sorted(set(rooms) - {0}):
        places = [i for i, each in zip(range(len(fleet.adapter_room))[only], rooms, strict=True) if each == room]
        labels = {"max_lora": str(room)}
        for key, status in (("waiting", records.WAITING), ("running", records.RUNNING)):
            found = codes[(requests["status"] == status) & np.isin(requests["replica"], places) & (codes >= 0)]
            labels[f"{key}_lora_adapters"] = ",".join(names[code] for code in np.unique(found).tolist())
        samples.append((labels, time.time()))
    if samples:
        made.family("vllm:lora_requests_info", "gauge", "Adapters of running and waiting requests.", samples)


def add_own(made: Page, service: Service, ignored: Counter) -> None:
    """Add the metrics of the simulation to a page.

    ignored : fields of requests that are not known, by name.
    """
    clock, lag = service.clock, service.lag
    late = Histogram(tuple(bound / 1e9 for bound in LAG_BOUNDS_NS))
    late.counts, late.sum = lag.counts, lag.sum_ns / 1e9
    made.family("simulator:lag_seconds", "histogram", "Wall time from due to written.", [({}, late)])
    made.family("simulator:behind", "gauge", "1: the last message was late by more than 5 ms.", [({}, lag.is_behind)])
    made.family("simulator:speed", "gauge", "Simulated seconds a second; 0: time stands, or jumps.",
                [({}, 0 if clock.is_fast or clock.is_paused else clock.speed)])
    made.family("simulator:simulated_seconds", "gauge", "Simulated time.", [({}, clock.now_ns() / 1e9)])
    made.family("simulator:stretched_seconds", "counter", "Wall time for which simulated time waited.",
                [({}, service.stretched_ns / 1e9)])
    made.family("simulator:ignored_fields_total", "counter", "Fields of requests without an effect.",
                [({"field": name}, count) for name, count in ignored.items()])
