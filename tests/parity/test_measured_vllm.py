"""Measured operators against engines that really ran: the iteration times of vLLM, second by second.

Runs of vLLM 0.19 on one RTX PRO 6000, 300 chat requests at 10/s, recorded by the LLMServingSim project. Each second
gives a mean iteration time = running / (output tokens/s), and the requests' times say who was running. Needs the tables
of aiconfigurator-core.
"""
import csv
import gzip
import json
from importlib.util import find_spec
from statistics import median

import pytest

from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.parallelism import Parallelism
from simulator.latency.operators import Operators
from support.goldens import GOLDENS

RUNS = GOLDENS.parent / "data" / "profiles" / "measured_vllm" / "RTXPRO6000"

pytestmark = [
    pytest.mark.skipif(not RUNS.is_dir(), reason="needs ../shared/data/profiles/measured_vllm"),
    pytest.mark.skipif(find_spec("aiconfigurator_core") is None, reason="needs the package aiconfigurator-core"),
    pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs pyarrow"),
]


# (run, model, ranks, median of predicted / measured): measured with aiconfigurator-core 0.12.0, nothing fitted, no host
# time. Decodes alone of the 8B meet 0.95.
@pytest.mark.parametrize(("run", "model", "ranks", "ratio"), [
    ("Llama-3.1-8B", "llama-3.1-8b", 1, 0.92),
    ("Qwen3-32B", "qwen3-32b", 2, 0.77),
])
def test_iterations_take_about_as_long_as_measured(run, model, ranks, ratio, tmp_path):
    operators = Operators(Operators.Parameters(cache_directory=str(tmp_path)), Deployment(
        model=load_model(model), accelerator=load_accelerator("rtx-pro-6000-server"),
        parallelism=Parallelism(tensor_parallel=ranks)))

    ratios = [operators.predict(prefill, decode) / seconds for prefill, decode, seconds in iterations(RUNS / run)]

    assert len(ratios) > 50
    assert median(ratios) == pytest.approx(ratio, abs=0.05)
    assert operators.provenance()["roofline"] == 0


def iterations(folder):
    """Yield the prompts and contexts of a mean iteration of each busy second, and its measured time."""
    with gzip.open(folder / "requests.jsonl.gz", "rt") as file:
        requests = [json.loads(line) for line in file]
    start = min(request["queued_ts"] for request in requests)
    with (folder / "timeseries.csv").open() as file:
        for second in csv.DictReader(file):
            contexts = contexts_at(start + float(second["t"]), requests)
            if len(contexts) >= 16 and float(second["gen_throughput"]) > 0:
                seconds = len(contexts) / float(second["gen_throughput"])
                prompt_tokens = int(float(second["prompt_throughput"]) * seconds)
                yield [(prompt_tokens, 0)] * (prompt_tokens > 0), contexts, seconds


def contexts_at(instant, requests):
    """Return tokens in the KV cache of each request that is decoding, its output taken as evenly spread."""
    running = [each for each in requests if each["first_token_ts"] < instant < each["last_token_ts"]]
    return [int(each["input_toks"] + each["output_toks"] * (instant - each["first_token_ts"])
                / (each["last_token_ts"] - each["first_token_ts"])) for each in running]
