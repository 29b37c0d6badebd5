"""The terms of `trained_physics`: microseconds per token, pair or iteration, for one model on one accelerator.

Notation: h hidden size, t tensor-parallel ranks, d data-parallel ranks. A rank computes 1/d of the tokens with 1/t of
the weights; routed experts are spread over all g = t d ranks, or over t where there are none.
"""
import msgspec

from simulator.domain.deployment import Deployment
from simulator.latency.blis.trained_counts import (
    COUNTED,
    Counts,
    PeakRates,
    blis_counts,
    blis_rates,
    datasheet_rates,
    model_counts,
)

KV_BYTES = 2                    # of an element of the KV cache, in any format
ACTIVATION_BYTES = 2            # of an element of an all-reduce


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """Microseconds.

    Prices of prompts and decodes are at peak rates, without their coefficients; other prices include theirs.
    """

    prefill_token: float        # products with weights
    prefill_pair: float         # attention, per (token of a chunk, context token) charged
    prefill_kv_token: float     # KV cache written
    decode_token: float
    decode_pair: float
    decode_kv_token: float      # KV cache read, per token of context, the new one included
    expert_token: float         # part of prefill_token and decode_token for routed experts
    weights: float              # read once
    reduce_token: float         # all-reduces: one per token mixer, one per network
    exchange_token: float       # experts over data-parallel ranks: dispatch and combine
    layers: float
    sequence: float
    iteration: float
    alternation: float          # layers with experts that alternate with dense ones
    beta_prefill: float
    beta_prefill_kv: float
    beta_decode: float
    beta_decode_kv: float
    splits_prefill: bool        # arithmetic and memory of prompts add up; else the longer counts
    splits_decode: bool


def prices(deployment: Deployment, beta: tuple[float, ...], conventions: str, expert_exchange: str) -> Prices:
    """Return the prices of `deployment` under 7 to 11 coefficients.

    Parameters
    ----------
    conventions : "blis" or "model", see trained_counts.
    expert_exchange : "all_gather" or "all_to_all".
    """
    is_blis = conventions == "blis"
    deployment.model.refuse_unpriced("trained_physics", COUNTED)
    counts = blis_counts(deployment.model) if is_blis else model_counts(deployment.model)
    rates = blis_rates(deployment) if is_blis else datasheet_rates(deployment)
    beta = _complete(beta, given := len(beta))
    ways = deployment.parallelism
    ranks = ways.tensor_parallel * ways.data_parallel
    token = _token_flops(counts, ranks) / rates.flops
    pair = counts.pair_flops / ranks / rates.flops
    kv_token = counts.kv_elements / ranks * KV_BYTES / rates.memory_bytes
    return Prices(
        prefill_token=token, prefill_pair=pair, prefill_kv_token=kv_token,
        decode_token=token, decode_pair=pair, decode_kv_token=kv_token,
        expert_token=_expert_flops(counts, ranks) / rates.flops,
        weights=beta[2] * (_weight_bytes(counts, deployment) / rates.memory_bytes),
        reduce_token=beta[3] * _reduce_us(counts, deployment, rates),
        exchange_token=beta[10] * _exchange_us(counts, deployment, rates, expert_exchange),
        layers=beta[4] * deployment.model.num_layers,
        sequence=beta[5],
        iteration=beta[6],
        alternation=beta[7] * counts.num_moe_layers if counts.alternates else 0.0,
        beta_prefill=beta[0], beta_prefill_kv=beta[8], beta_decode=beta[1], beta_decode_kv=beta[9],
        splits_prefill=given >= 9, splits_decode=given >= 10)


def _complete(beta: tuple[float, ...], given: int) -> tuple[float, ...]:
    """Return all eleven coefficients: missing ones are 0, except the exchange of experts, which is beta[3]."""
    return beta if given == 11 else (*beta, *[0.0] * (10 - given), beta[3])


def _token_flops(counts: Counts, ranks: int) -> float:
    """Return the FLOPs of a token on one rank: one multiply-add a weight."""
    moe_layer = counts.expert * counts.experts_per_token + counts.shared
    weights = counts.projections + counts.num_moe_layers * moe_layer + counts.num_dense_layers * counts.dense
    return 2 * weights / ranks


def _expert_flops(counts: Counts, ranks: int) -> float:
    """Return the FLOPs of a token on one rank for routed experts."""
    return 2 * counts.num_moe_layers * counts.expert * counts.experts_per_token / ranks


def _weight_bytes(counts: Counts, deployment: Deployment) -> float:
    """Return the bytes of all weights of one rank; the iteration reads every expert once."""
    ways = deployment.parallelism
    redundant = deployment.experts.num_redundant if deployment.experts else 0
    experts = counts.num_moe_layers * (counts.num_experts + redundant) * counts.expert
    others = counts.projections + counts.num_moe_layers * counts.shared + counts.num_dense_layers * counts.dense
    return (others * deployment.matrix_bytes / ways.tensor_parallel
            + experts * deployment.expert_bytes / (ways.tensor_parallel * ways.data_parallel))


def _reduce_us(counts: Counts, deployment: Deployment, rates: PeakRates) -> float:
    """Return the time of all all-reduces per token: ring volume 2 (t-1)/t, at memory bandwidth.

    The coefficient makes up for the ratio of link to memory bandwidth. Experts over data-parallel ranks exchange
    tokens instead.
    """
    tensor, copies = deployment.parallelism.tensor_parallel, deployment.parallelism.data_parallel
    units = (deployment.model.num_layers + counts.num_dense_layers) / copies
    if copies == 1:
        units += counts.num_moe_layers
    volume = units * deployment.model.hidden_size * ACTIVATION_BYTES * 2 * (tensor - 1) / tensor
    return volume / rates.memory_bytes


def _exchange_us(counts: Counts, deployment: Deployment, rates: PeakRates, expert_exchange: str) -> float:
    """Return the time of dispatch and combine per token, at memory bandwidth.

    all_gather: every rank gets every token; all_to_all: a token goes to its experts. Elements have the width of the
    experts' weights.
    """
    copies = deployment.parallelism.data_parallel
    if copies == 1 or counts.num_moe_layers == 0:
        return 0.0
    ranks = copies * deployment.parallelism.tensor_parallel
    sent = 1 if expert_exchange == "all_gather" else counts.experts_per_token
    volume = 2 * sent / copies * (ranks - 1) / ranks * deployment.model.hidden_size * deployment.expert_bytes
    return counts.num_moe_layers * volume / rates.memory_bytes
