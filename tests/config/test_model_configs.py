"""Counts of published configurations: parameters, KV, states, blocks, stored bytes.

The models are folders with a config.json and an expected.json beside them, in ../shared/data/model_configs or
$SIM_MODEL_CONFIGS.
"""
import json
import os
from functools import cache
from pathlib import Path

import pytest

from simulator.config.huggingface.reader import read_config
from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator
from simulator.domain.kv_groups import plan_groups
from simulator.domain.kv_layout import kv_layout
from simulator.domain.rank_weights import rank_weights
from simulator.errors import InputErrors

DEFAULT = Path(__file__).resolve().parents[3] / "shared/data/model_configs"
FOLDER = Path(os.environ.get("SIM_MODEL_CONFIGS", DEFAULT))
FILE = FOLDER / "expected.json"
EXPECTED = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
pytestmark = pytest.mark.skipif(not EXPECTED, reason=f"no {FILE}")

# Models that are refused, and a part of the reason.
REFUSED: dict[str, str] = {}
# Counts that are known to be wrong.
WRONG: dict[str, set[str]] = {}
TAKEN = [name for name in EXPECTED if name not in REFUSED]


def taken(count: str):
    """Return the models whose count is compared."""
    return pytest.mark.parametrize("name", [name for name in TAKEN if name not in WRONG.get(count, ())])


@cache
def model(name: str):
    return read_config(FOLDER / name)


def deployment(name: str) -> Deployment:
    return Deployment(model=model(name), accelerator=load_accelerator("h200-sxm-141gb"), kv_cache_dtype="bfloat16")


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_model_is_refused_by_name(name):
    with pytest.raises(InputErrors) as caught:
        read_config(FOLDER / name)

    assert REFUSED[name] in str(caught.value)


@taken("parameters")
def test_parameters(name):
    # exact but for biases of routers, which the reference keeps outside its parameters
    expected, found = EXPECTED[name]["parameters"], model(name).num_parameters
    biases = sum(len(numbers) * layer.moe.num_experts * layer.moe.router_bias
                 for layer, numbers in model(name).kinds.items() if layer.moe)

    assert found in (expected, expected + biases)


@taken("vision")
def test_parameters_of_the_vision_tower(name):
    expected = EXPECTED[name]["vision_parameters"]

    assert expected is None or model(name).vision_parameters == pytest.approx(expected, rel=0.01)


@taken("kv")
def test_kv_bytes_of_a_token(name):
    expected, found = EXPECTED[name]["kv_bytes_per_token"], {"full": 0, "sliding": {}, "chunked": {}}
    for mixer, count in model(name).placed_mixers:
        part = mixer.part
        if part.kind == "csa_hca":          # packed fp8 by itself, and a window in every layer
            found["full"] += count * part.token_bytes(1.0, is_packed=True)
            window = str(part.window)
            found["sliding"][window] = found["sliding"].get(window, 0) + count * part.row_bytes(1.0)
            continue
        num_bytes = count * part.token_bytes(2.0)
        if mixer.window:
            table = found["chunked" if mixer.chunked else "sliding"]
            table[str(mixer.window)] = table.get(str(mixer.window), 0) + num_bytes
        else:
            found["full"] += num_bytes

    if name == "longcat-flash":
        # vLLM 0.33, longcat_flash.py: 28 layers of two attentions, not 56 as the reference's num_hidden_layers says
        found["full"] *= 2
    assert found == {key: expected[key] for key in found}


@taken("state")
def test_state_bytes_of_a_sequence(name):
    found = kv_layout(deployment(name)).state_bytes_per_sequence

    assert found == EXPECTED[name]["state_bytes_per_sequence"]


@taken("hybrid")
def test_tokens_of_a_block_beside_states(name):
    expected = EXPECTED[name].get("hybrid")
    if expected is None:
        pytest.skip("no states beside attention")
    groups = plan_groups(deployment(name), 16, 8192).layers.groups

    assert next(group.block_size for group in groups if group.kind == "full_attention") == expected["block_tokens"]


@taken("weights")
def test_stored_bytes(name):
    expected = EXPECTED[name].get("weight_bytes")
    if expected is None:
        pytest.skip("not known")

    assert rank_weights(deployment(name)).num_bytes == pytest.approx(expected, rel=0.01)
