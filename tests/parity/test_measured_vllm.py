"""Measured operators against engines that really ran: the iteration times of vLLM, second by second.

Runs of vLLM 0.19 on RTX PRO 6000 cards, 300 chat requests at 10/s, recorded by the LLMServingSim project. Each second
gives a mean iteration time = running / (output tokens/s), and the requests' times say who was running. Operators are
those that project measured on the same cards, or those of the package aiconfigurator-core where it is installed.
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
from simulator.latency.operators.model import Operators
from support.goldens import GOLDENS

PROFILES = GOLDENS.parent / "data" / "profiles"
RUNS = PROFILES / "measured_vllm" / "RTXPRO6000"
OF_CARD = PROFILES / "llmservingsim" / "RTXPRO6000"
HAS_PACKAGE = find_spec("aiconfigurator_core") is not None and find_spec("pyarrow") is not None

pytestmark = pytest.mark.skipif(not RUNS.is_dir(), reason="needs ../shared/data/profiles/measured_vllm")
package = pytest.mark.skipif(not HAS_PACKAGE, reason="needs the package aiconfigurator-core")


# The median of predicted / measured, as it was when measured first: nothing is fitted, and no host time is added. The
# 32B is spread over two cards that talk over PCIe, whose all-reduces no profile of the first source has.
@pytest.mark.parametrize(("run", "model", "ranks", "source", "ratio"), [
    ("Llama-3.1-8B", "llama-3.1-8b", 1, "meta-llama/Llama-3.1-8B/tp1", 0.91),
    ("Qwen3-32B", "qwen3-32b", 2, "Qwen/Qwen3-32B/tp2", 0.80),
    pytest.param("Llama-3.1-8B", "llama-3.1-8b", 1, None, 0.92, marks=package),
    pytest.param("Qwen3-32B", "qwen3-32b", 2, None, 0.77, marks=package),
])
def test_iterations_take_about_as_long_as_measured(run, model, ranks, source, ratio, tmp_path):
    path = str(OF_CARD / source) if source else None
    operators = Operators(Operators.Parameters(path=path, cache_directory=str(tmp_path)), Deployment(
        model=load_model(model), accelerator=load_accelerator("rtx-pro-6000-server"),
        parallelism=Parallelism(tensor_parallel=ranks)))

    ratios = [operators.predict(prefill, decode) / seconds for prefill, decode, seconds in iterations(RUNS / run)]

    assert len(ratios) > 50
    assert median(ratios) == pytest.approx(ratio, abs=0.03)


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
