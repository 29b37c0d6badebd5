"""Every backend of the registry: more work never takes less time, and nothing is faster than the accelerator.

Neighbours of random batches have one token, sequence or token of context more. A backend that may fall says why and how
far: its own documented steps.
"""
import random

import numpy as np
import pytest

from latency.test_aicb import layers, write
from simulator import registry
from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model, names
from simulator.domain.parallelism import Parallelism
from simulator.domain.rank_weights import rank_weights
from simulator.latency.forest.model import Reading
from simulator.latency.forest.profiles import ROUNDED_OPERATORS
from simulator.latency.forest.tables import ForestTables
from support.goldens import GOLDENS
from support.small_models import LATENT, MIXTURE, RECURRENT, SLIDING, deploy

TABLES = GOLDENS.parent / "data" / "profiles" / "aiconfigurator"
BACKENDS = registry.KINDS["latency"].entries
NUM_BATCHES = 150
ROUNDING = 1e-12


def backend(name):
    return registry.load("latency", name)


def deployment(model="llama-3.1-8b", hardware="h100-sxm-80gb", **ways):
    return Deployment(model=load_model(model), accelerator=load_accelerator(hardware), parallelism=Parallelism(**ways))


def aicb(folder):
    """Return a backend with tables of two layers, whose attention grows with the square of a prompt."""
    for size in (1, 4, 16):
        for length in (100, 1000, 4000):
            write(folder, "decode", size, length, layers(1000 + size * length, 500 + 10 * size))
    for tokens in (1, 100, 1000, 8000):
        write(folder, "prefill", 1, tokens, layers(1000 + tokens ** 2, 500 + 10 * tokens))
    return backend("aicb")(backend("aicb").Parameters(tables=str(folder)), deploy())


def forest(folder):
    """Return a backend with tables that grow with tokens, sequences and context."""
    tokens, contexts = np.arange(20_000.0), np.arange(0, 30_001, 64) * 1.0
    tables = ForestTables(
        tokens=dict.fromkeys(ROUNDED_OPERATORS, tokens / 1000) | {"attn_kv_cache_save": tokens / 1e6},
        decode=np.outer(np.arange(65.0), contexts) / 1e6, prefill=np.add.outer(contexts, np.arange(10_001.0)) / 1e3,
        kv_granularity=64)
    return backend("forest")(backend("forest").Parameters(), deploy(), reading=Reading(tables))


def of_model(name, model="llama-3.1-8b", **parameters):
    return lambda _: backend(name)(backend(name).Parameters(**parameters), deployment(model))


def operators(model="llama-3.1-8b", **ways):
    def build(folder):
        return backend("operators")(backend("operators").Parameters(
            path=str(TABLES / "h100_sxm"), cache_directory=str(folder)), deployment(model, **ways))
    return build


def small(name, model):
    return lambda _: backend(name)(backend(name).Parameters(), deploy(model))


CASES = {
    "aicb": aicb, "forest": forest, "linear": lambda _: backend("linear")(backend("linear").Parameters()),
    "blackbox": lambda _: backend("blackbox")(backend("blackbox").Parameters(beta=(5000.0, 20.0, 15.0))),
    "crossmodel": of_model("crossmodel"), "crossmodel, mixture": of_model("crossmodel", "mixtral-8x7b"),
    "trained_physics": of_model("trained_physics"), "step_roofline": of_model("step_roofline"),
    "roofline": of_model("roofline"), "roofline, shares": of_model("roofline", efficiency="shares"),
    "roofline, mixture": of_model("roofline", "qwen3-30b-a3b"), "roofline, window": of_model("roofline", "gemma-3-4b"),
    "roofline, latent": of_model("roofline", "deepseek-v2-lite"),
    "roofline, recurrent": of_model("roofline", "qwen3-next-80b-a3b"),
    "operators": operators(), "operators, mixture": operators("qwen3-30b-a3b"),
    "operators, latent": operators("deepseek-v3", tensor_parallel=8),
} | {f"roofline, small {model.name}": small("roofline", model) for model in (LATENT, MIXTURE, RECURRENT, SLIDING)}

# A new line of the registry: as it is by default.
CASES |= {name: of_model(name) for name in BACKENDS if name not in {case.partition(",")[0] for case in CASES}}


def batches(seed):
    """Yield random batches, chunks and contexts, and what each gains: name, more chunks, more contexts."""
    draw = random.Random(seed)

    def length(most):
        return max(1, int(most ** draw.random()))
    for _ in range(NUM_BATCHES):
        chunks = [(length(4000), length(20_000) * draw.choice((0, 1))) for _ in range(draw.choice((0, 1, 1, 2, 4)))]
        contexts = [length(20_000) for _ in range(draw.choice((0, 1, 3, 16)) if chunks else draw.choice((1, 3, 16)))]
        more = draw.choice((1, length(500)))
        gains = [("decode", chunks, [*contexts, max(contexts, default=more)]),
                 ("chunk", [*chunks, (more, 0)], contexts), ("cached chunk", [*chunks, (more, 5000)], contexts)]
        if chunks:
            (tokens, before), *rest = chunks
            gains += [("tokens", [(tokens + more, before), *rest], contexts),
                      ("context", [(tokens, before + more), *rest], contexts)]
        if contexts:
            gains.append(("decode context", chunks, [contexts[0] + more, *contexts[1:]]))
        yield chunks, contexts, gains


# Points of tables stand as they were measured, and a larger size may have a faster kernel; so between rows of prompts.
MEASURED_STEPS = {"operators": 0.01, "operators, mixture": 0.05, "operators, latent": 0.03}


def build(name, folder):
    if name.startswith("operators") and not TABLES.is_dir():
        pytest.skip("needs ../shared/data/profiles/aiconfigurator")
    return CASES[name](folder)


SLOW = [pytest.param(name, marks=pytest.mark.slow) if name.startswith("operators") else name for name in CASES]


@pytest.mark.parametrize("name", SLOW)
def test_a_token_a_sequence_or_context_more_never_takes_less(name, tmp_path):
    model, step = build(name, tmp_path), MEASURED_STEPS.get(name, ROUNDING)
    for chunks, contexts, gains in batches(seed=1):
        before = model.predict(chunks, contexts)
        for what, more_chunks, more_contexts in gains:
            assert model.predict(more_chunks, more_contexts) >= before * (1 - step), (what, chunks, contexts)


def least_seconds(found, chunks, contexts):
    """Return the longer of FLOPs at peak and bytes at full bandwidth, of what every token passes and attends to."""
    model, accelerator, weights = found.model, found.accelerator, rank_weights(found)
    keys = sum(contexts) + sum(before for _, before in chunks)
    pairs = sum(contexts) + sum(tokens * (before + (tokens + 1) / 2) for tokens, before in chunks)
    tokens = len(contexts) + sum(tokens for tokens, _ in chunks)
    kv_elements = model.num_full_attention_layers * model.attention.kv_elements_per_token
    moved = weights.matrices * weights.matrix_bytes + kv_elements * found.kv_cache_bytes * keys
    flops = 2 * weights.matrices * tokens + (
        model.num_full_attention_layers * model.attention.flops_per_context_token * pairs)
    return max(moved / accelerator.memory_bandwidth_bytes_per_s, flops / accelerator.flops_per_s(found.matrix_dtype))


@pytest.mark.parametrize(("name", "model"), [
    ("roofline", "llama-3.1-8b"), ("roofline, shares", "llama-3.1-8b"), ("roofline, mixture", "qwen3-30b-a3b"),
    ("roofline, window", "gemma-3-4b"), ("roofline, recurrent", "qwen3-next-80b-a3b"),
    ("roofline, latent", "deepseek-v2-lite"), pytest.param("operators", "llama-3.1-8b", marks=pytest.mark.slow),
    pytest.param("operators, mixture", "qwen3-30b-a3b", marks=pytest.mark.slow)])
def test_nothing_is_faster_than_arithmetic_or_memory(name, model, tmp_path):
    priced, found = build(name, tmp_path), deployment(model)
    for chunks, contexts, _ in batches(seed=2):
        assert priced.predict(chunks, contexts) >= least_seconds(found, chunks, contexts), (chunks, contexts)


@pytest.mark.parametrize("hardware", names("hardware"))
def test_on_no_accelerator_either(hardware):
    for model in ("llama-3.1-8b", "deepseek-v2-lite"):
        found = deployment(model, hardware)
        for efficiency in ("laws", "shares"):
            priced = backend("roofline")(backend("roofline").Parameters(efficiency=efficiency), found)
            for chunks, contexts, _ in list(batches(seed=3))[:40]:
                assert priced.predict(chunks, contexts) >= least_seconds(found, chunks, contexts), (chunks, contexts)
