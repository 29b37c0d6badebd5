"""The coefficients of `step_roofline`: microseconds per token, pair and pass over the weights, on one rank."""
import math

import msgspec
import numpy as np

from simulator.domain.deployment import Deployment
from simulator.domain.hardware_spec import AcceleratorSpec
from simulator.errors import InputErrors, KeyFault
from simulator.latency.blis.trained_counts import COUNTED, Counts, blis_counts, blis_rates

# mfuPrefill, mfuDecode of BLIS's hardware_config.json at f90a1e3a
BLIS_SHARES = {"h100-sxm-80gb": (0.45, 0.30), "a100-sxm-80gb": (0.38, 0.18), "l40s": (0.32, 0.08)}
NETWORK_MATRICES = 2 / 3                # BLIS counts two of the three matrices of a gated network
VECTOR_FLOPS_PER_PAIR = 5               # of a head: softmax
VECTOR_FLOPS_PER_ELEMENT = 2            # of the hidden state: norms
NEGLIGIBLE = 2.0 ** -54                 # share of the experts below which a sum does not change


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Microseconds on one rank."""

    prefill_token_us: float         # at peak x mfu_prefill
    prefill_pair_us: float          # per (query, context token)
    decode_token_us: float          # at peak x mfu_decode
    decode_pair_us: float
    kv_token_us: float              # read or written, at peak bandwidth
    activation_token_us: float
    weights_us: np.ndarray          # read once for n tokens, by n; constant after the last


def model_flop_utilization(parameters, accelerator: AcceleratorSpec) -> tuple[float, float]:
    """Return the shares of peak for prompts and decodes.

    Raises
    ------
    InputErrors
        Neither the experiment nor BLIS has one.
    """
    published = BLIS_SHARES.get(accelerator.name, (None, None))
    given = (parameters.mfu_prefill, parameters.mfu_decode)
    shares = [own if own is not None else default for own, default in zip(given, published, strict=True)]
    faults = [KeyFault(f"latency.{key}: no default is known for {accelerator.name}; give one")
              for key, share in zip(("mfu_prefill", "mfu_decode"), shares, strict=True) if share is None]
    if faults:
        raise InputErrors(faults)
    return shares[0], shares[1]


def costs(deployment: Deployment, mfu_prefill: float, mfu_decode: float) -> Costs:
    """Return the coefficients of `deployment`."""
    deployment.model.refuse_unpriced("step_roofline", COUNTED)
    model, counts, rates = deployment.model, blis_counts(deployment.model), blis_rates(deployment)
    tensor = deployment.parallelism.tensor_parallel
    layers, width = model.num_layers, model.hidden_size
    token = 2 * (counts.projections + _network(counts, counts.experts_per_token)) + (
        layers * VECTOR_FLOPS_PER_ELEMENT * width)
    pair = counts.pair_flops + layers * VECTOR_FLOPS_PER_PAIR * model.attention.num_heads
    element_us = deployment.activation_bytes / tensor / rates.memory_bytes
    return Costs(
        prefill_token_us=token / tensor / (rates.flops * mfu_prefill),
        prefill_pair_us=pair / tensor / (rates.flops * mfu_prefill),
        decode_token_us=token / tensor / (rates.flops * mfu_decode),
        decode_pair_us=pair / tensor / (rates.flops * mfu_decode),
        kv_token_us=counts.kv_elements * element_us,
        activation_token_us=layers * width * element_us,
        weights_us=_weights(counts) * (deployment.matrix_bytes / tensor / rates.memory_bytes))


def _network(counts: Counts, num_experts: float) -> float:
    """Return the weights of all networks, with `num_experts` experts per layer; shared experts are left out."""
    return NETWORK_MATRICES * (
        counts.num_dense_layers * counts.dense + counts.num_moe_layers * num_experts * counts.expert)


def _weights(counts: Counts) -> np.ndarray:
    """Return the number of weights read for n = 0, 1, ... tokens: E (1 - (1 - k/E)^n) experts of each layer."""
    if not counts.num_experts:
        return np.array([counts.projections + _network(counts, 0)])
    idle = 1 - counts.experts_per_token / counts.num_experts
    length = 2 if idle == 0.0 else math.ceil(math.log(NEGLIGIBLE) / math.log(idle)) + 1
    needed = counts.num_experts * (1 - idle ** np.arange(length))
    needed[-1] = counts.num_experts
    return np.array([counts.projections + _network(counts, each) for each in needed])
