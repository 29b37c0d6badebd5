"""Decodes that FlashAttention 2 computes with prompts: by hand, and beside batches measured on two cards."""
import csv
import gzip
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace

from simulator.domain.facts import load_accelerator
from simulator.domain.layers.multi_head import MultiHeadAttention
from simulator.latency.operators.unsplit_decodes import unsplit_ns
from support.small_models import ACCELERATOR

PROFILES = Path(__file__).parents[3] / "shared/data/profiles/llmservingsim"
PART = MultiHeadAttention(num_heads=8, num_kv_heads=2, head_dim=128)
# A tile of 64 queries of 128 elements over 1,000 tokens, and 200 more, at 0.9 of 100 FLOPs/ns.
TILE_NS = 64 * 4 * 128 * 1200 / 0.9 / 100


class Kind:
    """Attention of known prompts."""

    def __init__(self, part=PART, window=0, rates=None):
        self._part, self._window, self._rates = part, window, rates or {}

    def decode_shape(self):
        return self._part, self._window

    def prompt_rate(self, tokens):
        return self._rates.get(tokens, 100.0)


def time_of(kind, decodes, context, **card):
    accelerator = replace(ACCELERATOR, **card) if "name" not in card else card["name"]
    deployment = SimpleNamespace(accelerator=accelerator, kv_cache_bytes=2)
    return float(unsplit_ns(SimpleNamespace(deployment=deployment), kind, np.array([decodes]),
                            np.array([float(context)]))[0, 0])


def test_each_head_of_each_decode_is_a_tile():
    assert time_of(Kind(), 0, 1000) == 0.0
    assert time_of(Kind(), 1, 1000) == pytest.approx(8 * TILE_NS)
    assert time_of(Kind(), 5, 1000) == pytest.approx(40 * TILE_NS)
    assert time_of(Kind(window=1000), 5, 9000) == pytest.approx(40 * TILE_NS)


def test_one_tile_takes_its_time_beside_a_short_prompt():
    beside_ns = 2 * 8 * 128 * 1024 ** 2 / 100
    assert time_of(Kind(), 1, 1000, num_cores=8) == pytest.approx(8 * TILE_NS)
    assert time_of(Kind(), 1, 1000, num_cores=800) == pytest.approx(800 * TILE_NS - beside_ns)


@pytest.mark.parametrize(("cores", "l2", "together"), [(0, 0, 4), (100, 0, 1), (200, 0, 2), (900, 0, 4), (100, 1e9, 4)])
def test_heads_that_run_apart_read_their_cache_apart(cores, l2, together):
    fast = Kind(rates={8192.0: 1e9})            # arithmetic takes nothing
    read = 100 * 8 * 1000 * 2 * 128 * 2 / (1000 * 0.92)
    assert time_of(fast, 100, 1000, num_cores=cores, l2_cache_bytes=int(l2)) == pytest.approx(read / together)


def test_a_core_of_an_a100_holds_two_tiles():
    fast = Kind(rates={8192.0: 1e9})
    assert time_of(fast, 100, 1000, name=replace(ACCELERATOR, vendor="NVIDIA", num_cores=100)) == pytest.approx(
        2 * time_of(fast, 100, 1000, name=replace(ACCELERATOR, vendor="NVIDIA", num_cores=200)))
    a100 = load_accelerator("a100-sxm-80gb")
    assert time_of(fast, 200, 9000, name=a100) == pytest.approx(
        200 * 8 * 9000 * 512 / (a100.memory_bandwidth_bytes_per_s * 1e-9 * 0.92))       # 216 tiles: one head at a time
    assert time_of(fast, 108, 9000, name=a100) == pytest.approx(
        108 * 8 * 9000 * 512 / 2 / (a100.memory_bandwidth_bytes_per_s * 1e-9 * 0.92))


@pytest.mark.parametrize(("folder", "card", "heads", "kv_heads", "most"), [
    ("RTX4090/meta-llama/Llama-3.1-8B/tp1", "rtx-4090", 32, 8, 0.13),
    ("RTXPRO6000/meta-llama/Llama-3.1-8B/tp1", "rtx-pro-6000-workstation", 32, 8, 0.12),
    ("RTXPRO6000/Qwen/Qwen3-32B/tp1", "rtx-pro-6000-workstation", 64, 8, 0.12),
    ("RTXPRO6000/Qwen/Qwen3-32B/tp2", "rtx-pro-6000-workstation", 32, 4, 0.12)])
def test_mixed_batches_are_near_those_measured(folder, card, heads, kv_heads, most):
    with gzip.open(PROFILES / folder / "attention.csv.gz", "rt") as file:
        rows = {tuple(int(row[name]) for name in ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")):
                float(row["time_us"]) for row in csv.DictReader(file)}
    rates = {8192.0: 4 * heads * 128 * 2048 * (8192 + 1024) / rows[2048, 8192, 0, 0] / 1e3,
             1024.0: 2 * heads * 128 * 1024 ** 2 / rows[1024, 0, 0, 0] / 1e3}
    kind = Kind(MultiHeadAttention(num_heads=heads, num_kv_heads=kv_heads, head_dim=128), rates=rates)
    accelerator, errors = load_accelerator(card), []
    for (chunk, prefix, decodes, context), measured in rows.items():
        if chunk >= 128 and prefix == 0 and decodes and context >= 16 and (chunk, 0, 0, 0) in rows:
            found = rows[chunk, 0, 0, 0] + time_of(kind, decodes, context, name=accelerator) / 1e3
            errors.append(found / measured - 1)
    assert len(errors) >= 400
    assert np.mean(np.abs(errors)) <= most
    assert abs(np.mean(errors)) <= 0.06
