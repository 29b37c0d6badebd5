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


# Nothing is fitted, and host time, sampling and the wait between iterations are not priced: what is predicted are
# kernels, which an iteration holds. So it takes no longer than measured, up to what a mean over one second is wrong by:
# one iteration that the second cuts.
#
# And no less than three quarters. Sums of measured kernels come within 15 % of engines on GPUs of one NVLink server
# (the mean errors of three deployments in ../shared/specs/accuracy.md). Two cards on PCIe may miss 10 % more: the
# all-reduces of an iteration of Qwen3-32B with 190 tokens, 2 x 64 layers x 190 x 5120 x 2 bytes = 249 MB, take 16 ms at
# the 16 GB/s of that server and 7 ms at the 36 GB/s of what is tabled, of 76.
LOWEST = 0.75
SECOND = 1.0


@pytest.mark.parametrize(("run", "model", "ranks", "source"), [
    ("Llama-3.1-8B", "llama-3.1-8b", 1, "meta-llama/Llama-3.1-8B/tp1"),
    ("Qwen3-32B", "qwen3-32b", 2, "Qwen/Qwen3-32B/tp2"),
    pytest.param("Llama-3.1-8B", "llama-3.1-8b", 1, None, marks=package),
    pytest.param("Qwen3-32B", "qwen3-32b", 2, None, marks=package),
])
def test_kernels_take_most_of_a_measured_iteration_and_never_more(run, model, ranks, source, tmp_path):
    path = str(OF_CARD / source) if source else None
    if not (RUNS / run).is_dir() or (path and not (OF_CARD / source).is_dir()):
        pytest.skip(f"no run or no profile of {run}")
    operators = Operators(Operators.Parameters(path=path, cache_directory=str(tmp_path)), Deployment(
        model=load_model(model), accelerator=load_accelerator("rtx-pro-6000-server"),
        parallelism=Parallelism(tensor_parallel=ranks)))

    measured = list(iterations(RUNS / run))
    ratios = [operators.predict(prefill, decode) / seconds for prefill, decode, seconds in measured]

    cut = median(seconds for _, _, seconds in measured) / SECOND
    assert LOWEST <= median(ratios) <= 1.0 + cut


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
