"""Recorded runs of BLIS under ../shared/goldens/blis, and the same requests for our engine.

BLIS forms batches as vLLM does as long as KV blocks suffice, so the engine runs them under our vLLM scheduler with the
limits of BLIS. BLIS counts whole microseconds and truncates each host time by itself; the delay before the queue is
therefore added to arrivals here, and what is added to token times, to the results. Of vLLM's versions it is 0.10 that
chunks prompts as BLIS does.
"""
import csv
import gzip
import json
import re
import shlex
from functools import cached_property
from types import SimpleNamespace

import numpy as np

from simulator.scheduling.vllm import VllmParameters
from simulator.workload.build import build_workload
from simulator.workload.columns import in_arrival_order
from simulator.workload.native_csv import NativeCsv
from support.engine import record
from support.goldens import GOLDENS

FOLDER = GOLDENS / "blis"
BLOCK_SIZE = 16
MODELS = {  # ours, format of the weights
    "meta-llama/llama-3.1-8b-instruct": ("llama-3.1-8b", None),
    "meta-llama/llama-3.3-70b-instruct": ("llama-3.3-70b", None),
    "mistralai/mixtral-8x7b-v0.1": ("mixtral-8x7b", None),
    "redhatai/llama-4-scout-17b-16e-instruct-fp8-dynamic": ("llama-4-scout", "fp8"),
}
ACCELERATORS = {"H100": "h100-sxm-80gb", "A100-SXM": "a100-sxm-80gb", "A100-80": "a100-sxm-80gb", "L40S": "l40s"}
HELD_BACK = ("batch", "background")       # classes that v0.7.1 lets in when no request of another is left
GATHERING = ("naive", "allgather_reducescatter")        # names of --moe-comm-backend; all others are all-to-all
# Options that the engine's setup or the latency model takes care of, and those that change nothing that is compared
UNDERSTOOD = {
    "model", "hardware", "tp", "dp", "enable-expert-parallel", "moe-comm-backend", "latency-model", "alpha-coeffs",
    "beta-coeffs", "total-kv-blocks", "block-size-in-tokens", "max-num-seqs", "max-num-running-reqs",
    "max-num-batched-tokens", "max-num-scheduled-tokens", "long-prefill-token-threshold", "model-config-folder",
    "hardware-config", "trace-header", "trace-data", "results-path", "metrics-path", "horizon"}


class Case:
    """One recorded run.

    options : of the command line, without dashes. requests : rows of its trace, with whole prompts.
    num_blocks : of the KV cache. step_us : start of every step. results : what it reported, by request id.
    """

    def __init__(self, folder):
        self.name, self.folder = folder.name, folder
        self.options = _options((folder / "command.txt").read_text(encoding="utf-8"))
        with open(folder / "trace.csv", encoding="utf-8", newline="") as file:
            self.requests = _requests(list(csv.DictReader(file)))
        self.num_blocks = next(map(int, self._log(r"with (\d+) KV blocks")))

    def __str__(self):
        return self.name

    @property
    def is_head(self):
        """Recorded by the newest version, which alone writes metrics."""
        return "metrics-path" in self.options

    @property
    def counts_outputs(self):
        """Every output token is counted, once; v0.7.1 leaves out the first and counts again what is done again."""
        return "v071" not in self.name

    @cached_property
    def held_back(self):
        """Ids of the requests that waited until no other was left."""
        return set(self._log(r"req (\w+) deferred"))

    @cached_property
    def step_us(self):
        return [int(at) for at in self._log(r"<< StepEvent at (\d+) ticks")]

    @cached_property
    def left_us(self):
        """When the last token of a request left the engine, by id."""
        return {name: int(at) for name, at in self._log(r"<< RequestLeft: (\w+) at (\d+) ticks")}

    @cached_property
    def output(self):
        return json.loads((self.folder / "output.json").read_bytes())

    @cached_property
    def results(self):
        return {each["id"]: each for each in self.output["requests"]}

    def _log(self, pattern):
        """Yield what the pattern finds, line by line: its group, or a tuple of them."""
        with gzip.open(self.folder / "events.log.gz", "rt", encoding="utf-8") as log:
            yield from (found[1] if len(found.groups()) == 1 else found.groups()
                        for found in map(re.compile(pattern).search, log) if found)

    def coefficients(self, name):
        """Return the numbers of an option, None where the command has none."""
        text = self.options.get(name)
        return None if text is None else tuple(float(part) for part in text.split(","))

    def number(self, *names, default):
        """Return the first of these options that is given."""
        return next((int(self.options[name]) for name in names if name in self.options), default)

    def obstacle(self):
        """Return why our vLLM scheduler cannot stand in for BLIS here; None if it can."""
        foreign = self.options.keys() - UNDERSTOOD
        if foreign:
            return f"not part of this comparison: --{', --'.join(sorted(foreign))}"
        blocks = sum(-(-(each.prompt_tokens + each.output_tokens) // BLOCK_SIZE) for each in self.requests)
        if blocks > self.num_blocks:
            return "KV blocks may not suffice, and BLIS has an answer of its own to that"
        if any(each.output_tokens == 0 or each.deadline_us for each in self.requests):
            return "requests without output or with a deadline"
        if any(each.shared_tokens == each.prompt_tokens for each in self.requests):
            return "BLIS computes nothing of a prompt that is wholly in the cache, vLLM its last token"
        return None


def cases():
    """Return the recorded single runs that have a trace and a log, in order of name."""
    folders = sorted(path.parent for path in FOLDER.glob("*/command.txt"))
    return [Case(folder) for folder in folders if (folder / "trace.csv").exists() and _is_replay(folder)]


def run(case, latency, queue_us):
    """Run a case on our engine; return its `Recording` and, by row, the ids of its requests.

    queue_us : returns, for the tokens of a prompt, the whole microseconds before it queues.
    """
    trace = NativeCsv().read("trace.csv", _trace_text(case.requests, queue_us).encode())
    workload = build_workload(in_arrival_order(trace), 0)
    latency.set_host(0.0, 1.0)
    parameters = VllmParameters(
        max_num_seqs=case.number("max-num-seqs", "max-num-running-reqs", default=256),
        max_num_batched_tokens=case.number("max-num-batched-tokens", "max-num-scheduled-tokens", default=2048),
        long_prefill_token_threshold=case.number("long-prefill-token-threshold", default=0),
        vllm_version="0.10")
    recording = record(workload, parameters, latency, details=False, block_size=BLOCK_SIZE, max_model_len=131_072,
                       num_gpu_blocks=case.num_blocks + 1)
    return recording, [int(name) for name in workload.request_ids]


def overlaps_itself(recording):
    """Say whether a request queues while the last batch of all others executes.

    BLIS lets a batch go when its step begins. If all its requests complete in it and none waits, a request that queues
    before the end starts a step at once, beside the one that still executes.
    """
    requests, iterations = recording.requests, recording.iterations
    for row in iterations[iterations["waiting"] == 0]:
        end_ns = row["start_ns"] + row["duration_ns"]
        if np.count_nonzero(requests["completed_ns"] == end_ns) == row["running"]:
            queued_ns = requests["enqueued_ns"]
            if ((queued_ns > row["start_ns"]) & (queued_ns < end_ns)).any():
                return True
    return False


def found_results(case, recording, ids, output_us, completion_us):
    """Return {BLIS's id: (first scheduled, TTFT, E2E latency)} in microseconds, as BLIS reports them.

    output_us : what BLIS adds to TTFT and to every gap between tokens. completion_us : to E2E latency, once.
    """
    found = {}
    for number, row in zip(ids, recording.requests, strict=True):
        request = case.requests[number]
        scheduled, first, last = (int(row[name]) / 1000 for name in ("scheduled_ns", "first_token_ns", "completed_ns"))
        found[f"request_{number}"] = (
            scheduled, first - request.arrival_us + output_us,
            last - request.arrival_us + output_us * request.output_tokens + completion_us)
    return found


def expected_results(case):
    """Return what BLIS reported, as `found_results` does."""
    return {name: (each["schedule_ticks"][0], each["ttft_us"], each["e2e_us"]) for name, each in case.results.items()}


def _is_replay(folder):
    return " replay " in (folder / "command.txt").read_text(encoding="utf-8") and (folder / "events.log.gz").exists()


def _options(command):
    words = shlex.split(command.splitlines()[1])
    return {word[2:]: value for word, value in zip(words, [*words[1:], ""], strict=True) if word.startswith("--")}


def _requests(rows):
    """Return the requests; a prompt is its group's prefix, as long as the first row of it says, and its own tokens."""
    lengths = {}
    for row in rows:
        lengths.setdefault(row["prefix_group"], int(row["prefix_length"]) if row["prefix_group"] else 0)
    return [SimpleNamespace(
        arrival_us=int(row["arrival_time_us"]), group=row["prefix_group"], shared_tokens=lengths[row["prefix_group"]],
        prompt_tokens=lengths[row["prefix_group"]] + int(row["input_tokens"]), output_tokens=int(row["output_tokens"]),
        deadline_us=int(row["deadline_us"])) for row in rows]


def _trace_text(requests, queue_us):
    lines = ["request_id,arrived_at,num_prefill_tokens,num_decode_tokens,prompt"]
    for number, each in enumerate(requests):
        arrival_us = each.arrival_us + queue_us(each.prompt_tokens)
        shared = f"{each.group}:{each.shared_tokens}/" if each.shared_tokens else ""
        lines.append(f"{number},{arrival_us // 10**6}.{arrival_us % 10**6:06d},{each.prompt_tokens},"
                     f"{each.output_tokens},{shared}:{each.prompt_tokens - each.shared_tokens}")
    return "\n".join(lines) + "\n"
