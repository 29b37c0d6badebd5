"""Iteration times of vidur-alibabacloud's AICB backend, as its recorded Chrome traces have them.

The cases with UNITFIX in their name agree as they are. In the others upstream multiplies seconds by 1e-3 once more, so
their iterations are a thousandth; that rule is checked too.
"""
import json
import math
import shlex
from itertools import pairwise

import pytest

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.parallelism import Parallelism
from simulator.latency.aicb.model import Aicb
from support.goldens import GOLDENS

FOLDER = GOLDENS / "vidurali"
TABLES = FOLDER / "aicb_csv_synth"
MODELS = {      # upstream's name -> (name in the tables, name here)
    "deepseek-671B": ("DeepSeek-671B", "deepseek-v3"),
    "qwen3-moe-235B": ("Qwen3-Moe-235B", "qwen3-235b-a22b"),
    "qwen3-next-80B": ("Qwen3-Next-80B", "qwen3-next-80b-a3b"),
}
UNIT_FAULT = 1e-3
CASES = sorted(path.parent.name for path in FOLDER.glob("aicb_*/chrome_trace.json"))
pytestmark = pytest.mark.skipif(not CASES, reason=f"no recorded runs in {FOLDER}")


def options(case):
    """Return the options of the recorded command: their values by the end of their names."""
    words = shlex.split((FOLDER / case / "command.txt").read_text())
    return {word.removeprefix("--"): value for word, value in pairwise(words)}


def option(given, name, default=None):
    return next((value for key, value in given.items() if key.endswith(name)), default)


def backend(given):
    """Return the backend as the recorded run used it, and the number of prefill replicas."""
    table_model, model = MODELS[option(given, "_model_name")]
    tensor, replicas = int(option(given, "_tensor_parallel_size")), int(option(given, "_num_replicas"))
    prefill = int(option(given, "_num_prefill_replicas", math.floor(
        replicas * float(option(given, "_pd_node_ratio")))))
    size, decode_size = tensor * prefill, tensor * (replicas - prefill)
    parameters = Aicb.Parameters(
        tables=str(TABLES), table_model=table_model, variant="upstream",
        rdma_bandwidth_gbps=float(option(given, "_rdma_bandwidth")), world_size=size, expert_parallel=size,
        decode_world_size=decode_size, decode_expert_parallel=decode_size)
    deployment = Deployment(model=load_model(model), accelerator=load_accelerator("h20-96gb"),
                            parallelism=Parallelism(tensor_parallel=tensor))
    return Aicb(parameters, deployment), prefill


def iterations(case):
    """Yield (replica, tokens by request, outputs so far by request, microseconds) of each recorded iteration."""
    outputs = {}
    events = json.loads((FOLDER / case / "chrome_trace.json").read_text())["traceEvents"]
    for event in sorted((event for event in events if event["ph"] == "X"), key=lambda event: event["ts"]):
        requests, tokens = event["args"]["request_ids"], event["args"]["num_tokens"]
        yield (event["pid"], dict(zip(requests, tokens, strict=True)),
               {request: outputs.get(request, 0) for request in requests}, event["dur"])
        for request in requests:
            outputs[request] = outputs.get(request, 0) + 1


@pytest.mark.parametrize("case", CASES)
def test_every_iteration_takes_as_long_as_upstreams(case):
    given = options(case)
    model, prefill_replicas = backend(given)
    prompt = int(option(given, "_prefill_tokens"))
    scale = 1.0 if case.endswith("_UNITFIX") else UNIT_FAULT

    compared = 0
    for replica, tokens, outputs, recorded_us in iterations(case):
        if replica < prefill_replicas:
            found = model.predict(prefill=[(count, 0) for count in tokens.values()])
        else:
            found = model.predict(decode=[prompt + outputs[request] for request in tokens])
        assert found * 1e6 * scale == pytest.approx(recorded_us, rel=1e-9), (replica, tokens, outputs)
        compared += 1
    assert compared >= 16
    assert model.provenance()["nearest"] == 0       # everything compared comes from the tables


def test_two_pipeline_stages_which_crash_upstream(tmp_path):
    # crash_aicb_pp2: upstream stops at the layers of a stage. Layers do not depend on the stage that has them.
    for path in TABLES.glob("*Qwen3-Moe*"):
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
