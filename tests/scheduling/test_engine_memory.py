"""What engines set of their memory where nothing is given."""
import json

import pytest
from msgspec.structs import replace

from simulator.domain.facts import load_accelerator, load_model
from simulator.domain.server_defaults.cards import as_card
from simulator.scheduling.sglang_arguments import SglangParameters
from simulator.scheduling.sglang_defaults import static_frac
from support.goldens import GOLDENS
from support.small_models import deploy

RECORDED = GOLDENS / "engine_args" / "sglang_0.5.23.jsonl"
CARDS = {"H100-80GB": "h100-sxm-80gb", "H200": "h200-sxm-141gb", "A100-80GB": "a100-sxm-80gb",
         "A100-40GB": "a100-sxm-40gb", "L40S": "l40s", "L4": "l4", "A10": "a10", "RTX4090": "rtx-4090",
         "B200": "b200-sxm-180gb", "GB200": "gb200", "RTXPRO6000": "rtx-pro-6000-server"}
PLAIN = ("--model", "--model-path", "--tp", "--tp-size", "--tensor-parallel-size", "--schedule-policy",
         "--kv-cache-dtype")
LATENT = "DeepSeek-V3"


def plain_lines():
    """Return recorded lines that say no more than model and ranks."""
    if not RECORDED.is_file():
        return [pytest.param(None, marks=pytest.mark.skip(f"no {RECORDED}"), id="none")]
    lines = map(json.loads, RECORDED.read_text().splitlines())
    return [pytest.param(line, id=f"{line['id']} {line['device']}") for line in lines if is_plain(line)]


def is_plain(line):
    """Return whether images and, on Blackwell, latent attention have no say."""
    text = " ".join(line["argv"])
    said = {word for word in line["argv"] if word.startswith("--")}
    is_other = "VL" in text or "gemma" in text or (LATENT in text and line["device"] in ("B200", "GB200"))
    return "resolved" in line and said <= set(PLAIN) and not is_other


@pytest.mark.parametrize("line", plain_lines())
def test_mem_fraction_static_is_what_the_server_sets(line):
    argv, found = line["argv"], line["resolved"]
    ranks = next((int(argv[i + 1]) for i, word in enumerate(argv) if word in PLAIN[2:5]), 1)
    model = load_model("deepseek-v3" if LATENT in str(argv) else "llama-3.1-8b")
    parameters = SglangParameters(chunked_prefill_size=found["chunked_prefill_size"], max_running_requests=4096)
    deployment = deploy(model, accelerator=load_accelerator(CARDS[line["device"]]), tensor_parallel=ranks)

    found_share = static_frac(parameters, deployment, as_card(deployment.accelerator))
    assert found_share == pytest.approx(found["mem_fraction_static"], abs=0.0011)


def share(parameters, **ways):
    """Return the share of a server on H100."""
    h100 = load_accelerator("h100-sxm-80gb")
    return static_frac(parameters, deploy(accelerator=h100, **ways), as_card(h100))


def test_more_sequences_and_ranks_leave_less():
    parameters = SglangParameters()
    one = share(parameters)

    assert one == 0.83                          # as SGLang 0.5.23 sets it for Llama-3.1-8B
    assert share(parameters, tensor_parallel=4) < one
    assert share(replace(parameters, max_running_requests=8)) > one
    assert share(replace(parameters, chunked_prefill_size=16_384)) < one
