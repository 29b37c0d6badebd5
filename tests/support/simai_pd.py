"""Recorded runs of vidur-alibabacloud with prompts computed apart, and the same on our simulator.

What a batch takes is read from the recording: by its prompts, and by how many decode with how much context. A decode
replica of upstream may take a request into a batch before its KV has come (specs/simai.md, A.1, the race). Ours does so
with `upstream_compat` alone; without, what that replica does from the first such batch on is not compared.
"""
import csv
import json
import math
import re
from collections import Counter
from functools import cached_property

import tomli_w

import simulator
from simulator.latency.python_model import PythonLatencyModel
from support.goldens import GOLDENS

FOLDER = GOLDENS / "vidurali"
TYPE_BYTES = {"fp8": 1, "float16": 2, "float32": 4}
# Keys and values of all layers, as upstream counts them: 2 x KV heads x (hidden size // heads) x layers.
TOKEN_ELEMENTS = {"meta-llama/Meta-Llama-3-8B": 2 * 8 * 128 * 32, "deepseek-671B": 2 * 128 * 56 * 61,
                  "qwen3-moe-235B": 2 * 4 * 64 * 94, "qwen3-next-80B": 2 * 2 * 128 * 48}
EARLY_S = 1e-9
KEYS = ("batch_size_cap", "block_size", "max_tokens_in_batch")


class RecordedTimes(PythonLatencyModel):
    """What batches took in the case at hand; one that was not recorded takes what the nearest did."""

    case = None

    def batch_us(self, shape):
        key = (shape.num_chunks, shape.prefill_tokens, shape.prefill_token_pairs) if shape.num_chunks else (
            shape.num_decodes, shape.context_tokens)
        known = self.case.batch_us
        return known[key] if key in known else known[min(
            known, key=lambda each: (len(each) != len(key), abs(each[0] - key[0]), abs(each[1] - key[1])))]


class Case:
    """One recorded run.

    requests : rows of its table. batches : (replica, start in s, its requests), as they began.
    """

    def __init__(self, folder):
        self.name, self.folder = folder.name, folder
        command = (folder / "command.txt").read_text(encoding="utf-8")
        self.options = dict(re.findall(r"--(\w+) ([^\s-]\S*)", command))

    def __str__(self):
        return self.name

    @property
    def is_apart(self):
        """Say whether prompts are computed apart, and recorded times are those of a run that ended."""
        return 0 < self.ratio < 1 and "rc=0" in (self.folder / "status.txt").read_text(encoding="utf-8")

    def obstacle(self):
        """Return why the case is not compared; None if it is."""
        if not self.is_apart:
            return "prompts are not computed apart, or upstream crashed"
        if self.options["replica_config_model_name"] not in TOKEN_ELEMENTS:
            return "a model whose KV is not known here"
        return None

    @property
    def ratio(self):
        """Share of the replicas that compute prompts; 1: all do both."""
        return float(self.options.get("replica_config_pd_node_ratio", 1))

    @cached_property
    def _config(self):
        return json.loads((self.folder / "config.json").read_bytes())

    @property
    def asked(self):
        """Return what was asked of the scheduler."""
        return self._config["cluster_config"]["replica_scheduler_config"]

    @property
    def longest_text(self):
        """Return for how many tokens it sets blocks aside."""
        return self._config["request_generator_config"]["max_tokens"]

    @cached_property
    def requests(self):
        with open(self.folder / "request_metrics.csv", encoding="utf-8", newline="") as file:
            rows = [{key: _value(text) for key, text in row.items()} for row in csv.DictReader(file)]
        return sorted(rows, key=lambda row: row["Request Id"])

    @cached_property
    def events(self):
        """Return the batches as they began, as the trace has them."""
        events = json.loads((self.folder / "chrome_trace.json").read_bytes())["traceEvents"]
        return sorted(events, key=lambda event: event["args"]["batch_id"])

    @property
    def peak_shares(self):
        """Return the share of its blocks that each replica held at its peak; replica i is in the i-th file, the first
        in the last.
        """
        files = [self.folder / f"plots/replica_{number or self.num_replicas}_memory_usage.json"
                 for number in range(self.num_replicas)]
        return [next(value for key, value in json.loads(path.read_bytes()).items() if key.endswith("_max"))
                for path in files]

    @cached_property
    def batch_us(self):
        """What each kind of batch took."""
        known, done = {}, Counter()
        for event in self.events:
            rows, tokens = event["args"]["request_ids"], event["args"]["num_tokens"]
            if event["pid"] < self.num_prefill:
                key = (len(rows), sum(tokens), sum(each * (each + 1) for each in tokens))
            else:
                done.update(rows)
                prompts = (int(self.requests[row]["request_num_prefill_tokens"]) for row in rows)
                key = (len(rows), sum(prompts) + sum(done[row] for row in rows))
            known[key] = event["dur"]
        return known

    @cached_property
    def first_early_s(self):
        """When each decode replica first took in a request whose KV had not come."""
        found, seen = {}, set()
        for event in self.events:
            for row in event["args"]["request_ids"] if event["pid"] >= self.num_prefill else ():
                start_s = event["ts"] / 1e6
                if row not in seen and start_s < self.requests[row]["decode_arrived_at"] - EARLY_S:
                    found.setdefault(event["pid"], start_s)
                seen.add(row)
        return found

    @property
    def num_replicas(self):
        return int(self.options["cluster_config_num_replicas"])

    @property
    def num_prefill(self):
        """Replicas that compute prompts: those numbered below a share of them."""
        return math.ceil(self.num_replicas * self.ratio)

    def is_undisturbed(self, row):
        """Say whether the decode replica of a request had taken in nothing early by the time it was complete."""
        return row["completed_at"] <= self.first_early_s.get(int(row["decode_replica_id"]), math.inf)


def cases():
    """Return all recorded cases, in order of name."""
    return [Case(path.parent) for path in sorted(FOLDER.glob("*/request_metrics.csv"))]


def run(case, folder, upstream_compat):
    """Return the Result of a case on our simulator, whose rows are as the case has them.

    upstream_compat : with the race, and the share of prefill replicas given as upstream has it; else their number.
    """
    lines = [f"{row['arrived_at']:.12f},{row['request_num_prefill_tokens']:.0f},{row['request_num_decode_tokens']:.0f}"
             for row in case.requests]
    (folder / "t.csv").write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *lines, ""]))
    token_bytes = TOKEN_ELEMENTS[case.options["replica_config_model_name"]] * TYPE_BYTES[
        case.options["replica_config_pd_p2p_comm_dtype"]]
    asked, longest = case.asked, case.longest_text
    experiment = {
        "workload": {"type": "trace", "path": str(folder / "t.csv"), "time_origin": "trace"},
        "engine": {"scheduler": case.options["replica_scheduler_config_type"], "max_model_len": longest,
                   "num_gpu_blocks": asked["batch_size_cap"] * longest // asked["block_size"],
                   "enable_prefix_caching": False, **{key: asked[key] for key in KEYS}},
        "latency": {"backend": "support.simai_pd:RecordedTimes"},
        "cluster": {"routing": {"policy": case.options["global_scheduler_config_type"]}},
        "kv_transfer": {
            "protocol": "simai", "kv_bytes_per_token": float(token_bytes), "upstream_compat": upstream_compat,
            "bandwidth_gb_per_s": float(case.options["replica_config_pd_p2p_comm_bandwidth"]) * 2**30 / 8 / 1e9},
        "output": {"token_times": True}}
    if upstream_compat:
        experiment["topology"] = {"replicas": case.num_replicas, "pd_node_ratio": case.ratio}
    else:
        experiment["pools"] = [{"name": "p", "role": "prefill", "replicas": case.num_prefill},
                               {"name": "d", "role": "decode", "replicas": case.num_replicas - case.num_prefill}]
    (folder / "a.toml").write_text(tomli_w.dumps(experiment))
    RecordedTimes.case = case
    return simulator.run(folder / "a.toml")


def batches_of(result):
    """Return the batches of a run: {(replica, end in ns): (begin in ns, requests, prompt and output tokens)}."""
    offsets, times_ns = (array.tolist() for array in result.token_times)
    found = {(int(row["replica"]), int(row["start_ns"] + row["duration_ns"])): (
        int(row["start_ns"]), set(), int(row["prefill_tokens"]), int(row["decode_tokens"]), int(row["sequences"]))
        for row in result.iterations}
    for number, row in enumerate(result.requests):
        found[int(row["prefill_replica"]), int(row["prefill_done_ns"])][1].add(number)
        for end_ns in times_ns[offsets[number] + 1:offsets[number + 1]]:
            found[int(row["replica"]), end_ns][1].add(number)
    return found


def _value(text):
    try:
        return float(text)
    except ValueError:
        return text
