"""Recorded runs of Vidur, and the same on our simulator: its schedulers, with times from its own tables.

Each replica is played by itself, with the requests that the recording sends it; who gets which is compared where the
policy draws nothing.
"""
import csv
import json
from functools import cached_property

import numpy as np

from parity import test_vidur_tables as recorded
from simulator.latency.forest.model import Forest, Reading
from simulator.registry import KINDS, load
from support.engine import plan_of
from support.recording import record
from support.workloads import plain_workload

SCHEDULERS = {"vllm": "vllm_v0"}            # Vidur's name -> ours, where they differ
KEYS = ("batch_size_cap", "watermark_blocks_fraction", "chunk_size", "max_tokens_in_batch", "max_waiting_iters")


def read_lines(path):
    """Return the rows of a file with a JSON object in each line, which may lie there packed."""
    return [json.loads(line) for line in recorded.read(path).splitlines()]


class Case:
    """One recorded run."""

    def __init__(self, name):
        self.name, self.folder = name, recorded.VIDUR / name

    def __str__(self):
        return self.name

    def obstacle(self):
        """Return why the run is not compared; None if it is."""
        if reason := recorded.left_out(self.name):
            return reason
        if self.scheduler not in KINDS["scheduler"].entries:
            return f"needs a scheduler {self.scheduler}"
        return None

    @cached_property
    def config(self):
        return json.loads(recorded.read(self.folder / "config.json"))

    @cached_property
    def setup(self):
        return json.loads(recorded.read(self.folder / "setup.json"))

    @cached_property
    def requests(self):
        """Return the requests in order of their numbers, as they stood at the end."""
        return sorted(read_lines(self.folder / "requests.jsonl"), key=lambda row: row["id"])

    @cached_property
    def stages(self):
        return read_lines(self.folder / "batch_stages.jsonl")

    @property
    def scheduler(self):
        name = self.config["cluster_config"]["replica_scheduler_config"]["name"]
        return SCHEDULERS.get(name, name)

    @property
    def router(self):
        return self.config["cluster_config"]["global_scheduler_config"]["name"]

    @property
    def num_replicas(self):
        return self.config["cluster_config"]["num_replicas"]

    @cached_property
    def lengths(self):
        """Return (prompt, output) tokens of each request as it came: a restart moves outputs to the prompt."""
        if any(row["num_restarts"] for row in self.requests):
            with open(self.folder / "trace.csv", encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
            return [(int(row["num_prefill_tokens"]), int(row["num_decode_tokens"])) for row in rows]
        return [(int(row["num_prefill_tokens"]), int(row["num_decode_tokens"])) for row in self.requests]

    @cached_property
    def replica_of(self):
        """Return the replica of each request that was in a batch."""
        return {row: stage["replica"] for stage in self.stages for row in stage["request_ids"]}

    def rows_of(self, replica):
        """Return the requests of a replica in order of arrival; who never was in a batch comes to the only one."""
        return [row for row in range(len(self.requests))
                if self.replica_of.get(row, 0 if self.num_replicas == 1 else -1) == replica]

    def batches_of(self, replica):
        """Return the batches of a replica as they began: what each computed, and (begin, end) in s in each stage."""
        found = {}
        for stage in self.stages:
            if stage["replica"] == replica:
                tokens = {row: int(count) for row, count in zip(stage["request_ids"], stage["num_tokens"])}
                _, visits = found.setdefault(stage["batch"], (tokens, []))
                visits.append((stage["t"], stage["t"] + stage["total_time_s"]))
        return list(found.values())

    def play(self, replica):
        """Return our recording of a replica, whose rows are those of `rows_of`."""
        rows = self.rows_of(replica)
        arrival_ns = [round(self.requests[row]["arrived_at"] * 1e9) for row in rows]
        prompts, outputs = np.array([self.lengths[row] for row in rows]).T
        workload = plain_workload(arrival_ns, prompts, outputs)
        workload.demands["expected_tokens"] = outputs                   # Vidur knows them
        scheduler = load("scheduler", self.scheduler)
        asked = self.config["cluster_config"]["replica_scheduler_config"]
        keys = {key: asked[key] for key in KEYS if key in scheduler.Parameters.__struct_fields__}
        return record(workload, plan_of(
            scheduler.Parameters(**keys), self._latency(), scheduler=scheduler, block_size=asked["block_size"],
            adds_up=True, num_gpu_blocks=int(self.setup["num_blocks"]), enable_prefix_caching=False,
            max_model_len=self.setup["max_blocks_per_sequence"] * asked["block_size"]), blocks=False)

    def _latency(self):
        parameters, deployment = recorded.parameters_of(self.config), recorded.deployment_of(self.config)
        tables = recorded.recorded_tables(recorded.key_of(self.name), parameters.kv_granularity_tokens)
        forest = Forest(parameters, deployment, reading=Reading(tables))
        stages = deployment.parallelism.pipeline_parallel
        if stages > 1:
            forest.set_stages([deployment.model.num_layers // stages] * stages)
        return forest


def cases():
    """Return all recorded runs."""
    return [Case(name) for name in recorded.CASES]
