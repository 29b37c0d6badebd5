"""Measured operators against servers that really ran, whole: 300 chat requests each, as their clients saw them.

Runs of vLLM 0.19 on RTX PRO 6000 cards, chat requests at 10/s, recorded by the LLMServingSim project. Operators are
those that project measured on the same cards, or those of the package aiconfigurator-core where it is installed.
Nothing is fitted to these runs. The two cards of the second one are joined by PCIe: collectives are those of vLLM
0.19.0, as measured on two such cards, bench/accuracy/rtx_pro_6000_qwen3_32b.
"""
import csv
import gzip
import json
from importlib.util import find_spec
from pathlib import Path
from statistics import mean

import pytest

from simulator.api import run
from support.goldens import GOLDENS

PROFILES = GOLDENS.parent / "data" / "profiles"
RUNS = PROFILES / "measured_vllm" / "RTXPRO6000"
OF_CARD = PROFILES / "llmservingsim" / "RTXPRO6000"
HAS_PACKAGE = find_spec("aiconfigurator_core") is not None and find_spec("pyarrow") is not None

pytestmark = pytest.mark.skipif(not RUNS.is_dir(), reason="needs ../shared/data/profiles/measured_vllm")
package = pytest.mark.skipif(not HAS_PACKAGE, reason="needs the package aiconfigurator-core")

EXPERIMENT = """
model = {{name = "{model}"}}
hardware = {{name = "rtx-pro-6000-server"}}
topology = {{tensor_parallel = {ranks}}}
engine = {{max_num_batched_tokens = 2048, max_num_seqs = 128}}
latency = {{backend = "operators", cache_directory = "cache"{more}}}
workload = {{type = "trace", path = "requests.csv", time_origin = "trace"}}
"""
COLLECTIVES = Path(__file__).parents[2] / "bench/accuracy/rtx_pro_6000_qwen3_32b/collectives.csv"
PCIE = f', collective = {{backend = "table", files = ["{COLLECTIVES}"]}}'

# Sums of measured kernels come within 5 % of engines on what lasts: a token, a request, the whole run. The package's
# tables were measured on other cards of this model than served here, and differ from the profile by up to 1.5 %. Of the
# mean TTFT 98 % is waiting for one of 128 places: the difference of arrivals and services, whose relative error is
# twice theirs.
CLOSE, OTHER_CARDS, QUEUE = 0.05, 0.02, 2.0


@pytest.mark.parametrize("source", ["profile", pytest.param("package", marks=package)])
@pytest.mark.parametrize(("name", "model", "ranks", "profile", "more"), [
    ("Llama-3.1-8B", "llama-3.1-8b", 1, "meta-llama/Llama-3.1-8B/tp1", ""),
    ("Qwen3-32B", "qwen3-32b", 2, "Qwen/Qwen3-32B/tp2", PCIE)])
def test_a_replay_lasts_as_long_as_the_server_did(name, model, ranks, profile, more, source, tmp_path):
    if not (RUNS / name).is_dir() or (source == "profile" and not (OF_CARD / profile).is_dir()):
        pytest.skip(f"no run or no profile of {name}")
    served = requests_of(RUNS / name)
    write_trace(tmp_path / "requests.csv", served)
    path = f', path = "{OF_CARD / profile}"' if source == "profile" else ""
    (tmp_path / "run.toml").write_text(EXPERIMENT.format(model=model, ranks=ranks, more=path + more))

    summary = run(tmp_path / "run.toml").summary

    close = CLOSE if source == "profile" else CLOSE + OTHER_CARDS
    assert summary["tpot_ms"]["mean"] == pytest.approx(1e3 * mean(map(tpot_s, served)), rel=close)
    assert summary["e2el_ms"]["mean"] == pytest.approx(1e3 * mean(ends(served)), rel=close)
    assert summary["duration_s"] == pytest.approx(max(each["last_token_ts"] for each in served), rel=close)
    assert summary["ttft_ms"]["mean"] == pytest.approx(1e3 * mean(
        each["first_token_ts"] - each["queued_ts"] for each in served), rel=QUEUE * close)


def requests_of(folder):
    """Return the requests of a run, times in s since the first was queued."""
    with gzip.open(folder / "requests.jsonl.gz", "rt") as file:
        requests = [json.loads(line) for line in file]
    start = min(request["queued_ts"] for request in requests)
    for request in requests:
        for name in ("queued_ts", "first_token_ts", "last_token_ts"):
            request[name] -= start
    return sorted(requests, key=lambda each: each["queued_ts"])


def write_trace(path, served):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["arrived_at", "num_prefill_tokens", "num_decode_tokens"])
        writer.writerows([each["queued_ts"], each["input_toks"], each["output_toks"]] for each in served)


def tpot_s(request):
    return (request["last_token_ts"] - request["first_token_ts"]) / max(request["output_toks"] - 1, 1)


def ends(served):
    return [each["last_token_ts"] - each["queued_ts"] for each in served]
