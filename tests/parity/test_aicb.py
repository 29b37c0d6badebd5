"""Iteration times of vidur-alibabacloud's AICB backend, as its recorded Chrome traces have them.

A case is a folder with the command of a run with that backend and its Chrome trace; the tables lie in a folder beside
them. As shipped, upstream multiplies seconds by 1e-3 once more, so that its iterations are a thousandth; some runs are
recorded with that removed. Which of both a run is shows in its first iteration; then every iteration has to agree.

Left out, as upstream does not answer from the tables there:
  - runs that crashed, and models without tables;
  - runs without a split into prefill and decode replicas (upstream then looks up a batch of nobody);
  - runs that found no table: each iteration is a whole number of its 1 us defaults.
An iteration that its look-up cache answers from tables of other lengths, read before, is compared with ours of such a
length (`Cache`): in the recorded run at 100 requests/s that is the one batch of two prompts, for which there is a
table that upstream does not open. Ours answers from it, and such a run ends later here.
"""
import csv
import json
import shlex
from collections import Counter
from itertools import pairwise

import pytest

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.parallelism import Parallelism
from simulator.latency.aicb.model import Aicb
from support.goldens import GOLDENS

FOLDER = GOLDENS / "vidurali"
TABLES = next((path.parent for path in sorted(FOLDER.rglob("vidur-*-bs*-seq*-*.csv"))), FOLDER)
MODELS = {      # upstream's name -> (name in the tables, name here)
    "deepseek-671B": ("DeepSeek-671B", "deepseek-v3"),
    "qwen3-moe-235B": ("Qwen3-Moe-235B", "qwen3-235b-a22b"),
    "qwen3-next-80B": ("Qwen3-Next-80B", "qwen3-next-80b-a3b"),
}
AT_2048 = "vidur-DeepSeek-671B-world_size16-tp8-pp1-ep16-bs1-seq2048-prefill.csv"
UNIT_FAULT = 1e-3
DEFAULT_US = 1e-3       # what a part of a layer without a table takes, 1 us, with the unit fault


def options(case):
    """Return the options of the recorded command: their values by the end of their names."""
    words = shlex.split((case / "command.txt").read_text())
    return {word.removeprefix("--"): value for word, value in pairwise(words)}


def option(given, name, default=None):
    return next((value for key, value in given.items() if key.endswith(name)), default)


RUNS = sorted(path.parent for path in FOLDER.rglob("chrome_trace.json"))
CASES = [case for case in RUNS if option(options(case), "_config_backend") == "aicb"]
NAMES = [str(case.relative_to(FOLDER)) for case in CASES]
pytestmark = pytest.mark.skipif(not CASES, reason=f"no recorded runs in {FOLDER}")
needs_tables = pytest.mark.skipif(TABLES == FOLDER, reason=f"no tables in {FOLDER}")


def left_out(case):
    """Return why a run cannot be compared, or None."""
    given = options(case)
    status = (case / "status.txt").read_text() if (case / "status.txt").exists() else "rc=0"
    if not status.startswith("rc=0"):
        return f"upstream crashed: {' '.join(status.splitlines()[-1:])}"
    if option(given, "_model_name") not in MODELS:
        return f"no tables of {option(given, '_model_name')}"
    if option(given, "global_scheduler_config_type") != "split_wise":
        return "prefill and decode are not split"
    durations = [us for *_, us in iterations(case)]
    if all(us < 1.0 and abs(us / DEFAULT_US - round(us / DEFAULT_US)) < 1e-6 for us in durations):
        return "upstream found no tables"
    return None


def census():
    """Return how many runs of the program were recorded, and why how many of them are left out."""
    others = Counter({"another backend than AICB": len(RUNS) - len(CASES)})
    return len(RUNS), +others + Counter(reason.partition(":")[0] for case in CASES if (reason := left_out(case)))


def backend(given):
    """Return the backend as the recorded run used it, and the number of prefill replicas, not always a whole one."""
    table_model, model = MODELS[option(given, "_model_name")]
    tensor, replicas = int(option(given, "replica_config_tensor_parallel_size")), int(option(given, "_num_replicas"))
    share = replicas * float(option(given, "_pd_node_ratio"))
    prefill = int(option(given, "_num_prefill_replicas", int(share)))
    size = int(option(given, "_prefill_tensor_parallel_size", tensor)) * prefill
    decode_size = int(option(given, "_decode_tensor_parallel_size", tensor)) * (replicas - prefill)
    parameters = Aicb.Parameters(
        tables=str(TABLES), table_model=table_model, variant="upstream",
        rdma_bandwidth_gbps=float(option(given, "_rdma_bandwidth", 800)), world_size=size, expert_parallel=size,
        decode_world_size=decode_size, decode_expert_parallel=decode_size)
    deployment = Deployment(model=load_model(model), accelerator=load_accelerator("h20-96gb"),
                            parallelism=Parallelism(tensor_parallel=tensor))
    return Aicb(parameters, deployment), share


def iterations(case):
    """Yield (replica, tokens by request, outputs so far by request, microseconds) of each recorded iteration."""
    outputs = {}
    events = json.loads((case / "chrome_trace.json").read_text())["traceEvents"]
    for event in sorted((event for event in events if event["ph"] == "X"), key=lambda event: event["ts"]):
        requests, tokens = event["args"]["request_ids"], event["args"]["num_tokens"]
        yield (event["pid"], dict(zip(requests, tokens, strict=True)),
               {request: outputs.get(request, 0) for request in requests}, event["dur"])
        for request in requests:
            outputs[request] = outputs.get(request, 0) + 1


def lengths(case):
    """Return (prompt tokens, output tokens) by request."""
    with (case / "request_metrics.csv").open() as file:
        return {int(row["Request Id"]): (int(float(row["request_num_prefill_tokens"])),
                                         int(float(row["request_num_decode_tokens"]))) for row in csv.DictReader(file)}


class Cache:
    """Which lengths upstream has read tables of, by phase and batch size: others are guessed from these.

    Between two of them it interpolates, as we do; beyond, the nearest stands for all (specs/simai.md, A.5).
    """

    def __init__(self):
        self._read = {}

    def length_for(self, key, length, last_length):
        """Return the length whose times upstream takes; `last_length`: read ahead."""
        if key not in self._read:
            self._read[key] = {length, last_length}
        return min(max(length, min(self._read[key])), max(self._read[key]))


@needs_tables
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_every_iteration_takes_as_long_as_upstreams(case):
    if reason := left_out(case):
        pytest.skip(reason)
    model, prefill_replicas = backend(options(case))
    size, cache, scale = lengths(case), Cache(), None
    for replica, tokens, outputs, recorded_us in iterations(case):
        if replica < prefill_replicas:
            total = int(sum(tokens.values()))
            found = model.predict(prefill=[(cache.length_for(("prefill", 1), total, total), 0)])
        else:
            contexts = [size[request][0] + outputs[request] for request in tokens]
            last = sum(sum(size[request]) - 1 for request in tokens)
            total = cache.length_for(("decode", len(tokens)), sum(contexts), last)      # the sum alone counts
            found = model.predict(decode=[total - len(tokens) + 1] + [1] * (len(tokens) - 1))
        scale = scale or (1.0 if recorded_us > found * 1e6 * UNIT_FAULT**0.5 else UNIT_FAULT)
        assert found * 1e6 * scale == pytest.approx(recorded_us, rel=1e-9), (replica, tokens, outputs)


@needs_tables
@pytest.mark.skipif(not (TABLES / AT_2048).exists(), reason=f"no table {AT_2048}")
def test_two_prompts_at_once_are_answered_by_their_own_table():
    # 61 layers of 1,024 tokens take 276.5 ms, of 2,048 572.7 ms; upstream, which has read the first, opens no other
    model = Aicb(Aicb.Parameters(
        tables=str(TABLES), table_model="DeepSeek-671B", variant="upstream", world_size=16, expert_parallel=16,
        decode_world_size=16, decode_expert_parallel=16), Deployment(
            model=load_model("deepseek-v3"), accelerator=load_accelerator("h20-96gb"),
            parallelism=Parallelism(tensor_parallel=8)))

    one, two = (model.predict(prefill=[(1024, 0)] * count) for count in (1, 2))
    assert (one, two) == (pytest.approx(0.276524806, abs=1e-9), pytest.approx(0.572672218, abs=1e-9))


@needs_tables
def test_two_pipeline_stages_which_crash_upstream(tmp_path):
    # Upstream stops at the layers of a stage. Layers do not depend on the stage that has them.
    tables = list(TABLES.glob("*Qwen3-Moe-*-pp1-*"))
    if not tables:
        pytest.skip("no tables of Qwen3-Moe-235B")
    for path in tables:
        (tmp_path / path.name.replace("-pp1-", "-pp2-")).write_bytes(path.read_bytes())

    def model(stages, tables, **parameters):
        deployment = Deployment(
            model=load_model("qwen3-235b-a22b"), accelerator=load_accelerator("h20-96gb"),
            parallelism=Parallelism(tensor_parallel=4, pipeline_parallel=stages))
        return Aicb(Aicb.Parameters(
            tables=str(tables), table_model="Qwen3-Moe-235B", world_size=8, expert_parallel=8, decode_world_size=24,
            decode_expert_parallel=24, **parameters), deployment)

    one, two = model(1, TABLES), model(2, tmp_path)
    for batch in ({"prefill": [(100, 0)]}, {"decode": [101]}, {"decode": [104, 103]}):
        handover = two.breakdown(**batch)["pipeline"]
        assert handover > 0
        assert two.predict(**batch) == pytest.approx(one.predict(**batch) + handover, rel=1e-12)

    # 94 layers, all alike: each stage has half, and the first one hands over
    slowest = model(2, tmp_path, pipeline="slowest_stage")
    assert slowest.predict(decode=[101]) == pytest.approx(
        one.predict(decode=[101]) / 2 + two.breakdown(decode=[101])["pipeline"], rel=1e-9)
