"""The coefficients of the roofline: nanoseconds per token, pair or row of each operator, on one accelerator.

Notation: h hidden size, k chosen of E experts, t tensor-parallel ranks, d data-parallel ranks (a batch is spread evenly
over them). A product with W weights takes 2 W FLOPs a token: one multiply-add a weight.
"""
from typing import NamedTuple

import msgspec
import numpy as np

from simulator.collective.exchanges import exchanges
from simulator.domain.deployment import Deployment
from simulator.domain.efficiency import (
    COLLECTIVE_LATENCY_US,
    KERNEL_LATENCY_US,
    LINK_EFFICIENCY,
    compute_dtype,
    efficiency_of,
    matmul_efficiency,
)
from simulator.domain.layers.mixers import Mixer, Pass
from simulator.domain.rank_weights import RankWeights, dense_parts, layer_kinds, rank_weights
from simulator.errors import InputErrors, KeyFault
from simulator.latency.roofline.kind_laws import kind_of
from simulator.latency.roofline.laws import ReduceLaw

UNBOUNDED_TOKENS = 2.0 ** 62    # a window above any context
# Kernels of one layer or iteration that start one after another, mixers excluded; counted in vLLM's models, fused
# ones once. Dense network: norm, gate and up, product, down. Experts: norm, router, top-k, sort, two grouped products,
# activation, sum. Iteration: embedding, last norm, head, sampling (two).
DENSE_KERNELS, MOE_KERNELS, ITERATION_KERNELS = 4, 8, 5
# Bytes per logit after the head: 16-bit logits are read, float32 ones written and read again to choose a token.
SAMPLER_BYTES_PER_LOGIT = 10
EXPERT_GROUPS = ("expert", "data")      # of the exchanges of tokens for their experts
MOST_OTHER_PASSES = 29          # of attention, beside one over the whole context, one over a window, floors
# Distinct experts have saturated when the expected number of idle experts is below this.
IDLE_EXPERTS = 1e-6


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Sustained rates of one accelerator, per nanosecond, and fixed latencies."""

    memory_bytes: float
    matrix_prefill_flops: float     # products with weights of attention, dense MLPs, shared experts
    matrix_decode_flops: float
    expert_prefill_flops: float
    expert_decode_flops: float
    plain_flops: float              # products that are not quantised: output head
    attention_flops: float
    kernel_ns: float
    attention_ns: float
    collective_ns: float
    link_efficiency: float


class AttentionCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Costs of all attention layers with this `window` of tokens."""

    window: float = UNBOUNDED_TOKENS
    pair_ns: float = 0.0            # per (query, key) pair of prompts: arithmetic
    expand_ns: float = 0.0          # per context token of prompts: keys and values expanded from the latent (MLA)
    latent_pair_ns: float = 0.0     # per pair, if a prompt attends to latents instead (MLA)
    prefill_kv_ns: float = 0.0      # per prompt token: its keys and values read
    prefill_context_ns: float = 0.0     # per context token of prompts: its keys and values read
    context_flops_ns: float = 0.0   # per (decode query, context token): arithmetic
    context_kv_ns: float = 0.0      # per context token of decodes: memory
    # From laws, else 0:
    tile_tokens: float = 0.0        # queries computed beyond those of a chunk, against the chunk's own keys
    prefill_query_ns: float = 0.0   # per prompt token: queries read, outputs written
    prefill_floor_ns: float = 0.0   # of a batch with prompts
    sequence_ns: float = 0.0        # per decode: its work items
    decode_floor_ns: float = 0.0    # of a batch with decodes
    # The last token of each chunk has the price of a decode, and all else is beyond it; see kind_laws.py.
    joins_decodes: bool = False


class RooflineCosts(msgspec.Struct, frozen=True, kw_only=True):
    """All coefficients, in nanoseconds."""

    constant_ns: float              # kernel and collective latencies of an iteration
    collective_ns: float            # part of constant_ns for collectives
    activation_token_ns: float      # per token: traffic of memory-bound kernels, KV write included
    collective_token_ns: float      # per token: all-reduces, expert exchange, stage hand-over
    gather_token_ns: float          # part of collective_token_ns: gathers of all tokens for a rank's experts
    handover_ns: float              # part of constant_ns: one hand-over to the next stage
    handover_token_ns: float        # part of collective_token_ns: one hand-over to the next stage
    dense_prefill_ns: float         # per prompt token: projections and dense MLPs
    dense_decode_ns: float          # per decode token
    dense_weights_ns: float         # reading their weights once
    expert_prefill_ns: float        # per prompt token: routed experts
    expert_decode_ns: float
    expert_weights_ns: np.ndarray   # reading the distinct experts that n tokens need, by n; constant after the last
    head_sample_ns: float           # per sampled row: output head
    head_weights_ns: float
    sampler_sample_ns: float        # per sampled row: logits gathered, widened, reduced
    full_attention: AttentionCosts
    window_attention: AttentionCosts
    state_sequence_ns: float        # per sequence: recurrent state read and written
    state_token_ns: float           # per prompt token: recurrent state updated
    other_attention: tuple[AttentionCosts, ...] = ()    # of layers with other windows, and of further passes
    # From laws, else None: by rows, instead of dense_*, expert_* and head_*.
    dense_ns: np.ndarray | None = None
    experts_ns: np.ndarray | None = None        # of the busiest rank
    even_experts_ns: np.ndarray | None = None   # at the mean load of the ranks
    head_ns: np.ndarray | None = None


def rates(parameters, deployment: Deployment) -> Rates:
    """Return peak rates x efficiency, from the parameters or else measured."""
    accelerator = deployment.accelerator
    measured = efficiency_of(accelerator)

    def flops(dtype: str, share: float | None) -> float:
        default = matmul_efficiency(measured, compute_dtype(accelerator, dtype))
        return accelerator.flops_per_s(dtype) * 1e-9 * (default if share is None else share)

    return Rates(
        memory_bytes=(accelerator.memory_bandwidth_bytes_per_s * 1e-9
                      * _given(parameters.bandwidth_efficiency, measured.bandwidth_frac)),
        matrix_prefill_flops=flops(deployment.matrix_product_dtype, parameters.mfu_prefill),
        matrix_decode_flops=flops(deployment.matrix_product_dtype, parameters.mfu_decode),
        expert_prefill_flops=flops(deployment.expert_product_dtype, parameters.mfu_prefill),
        expert_decode_flops=flops(deployment.expert_product_dtype, parameters.mfu_decode),
        plain_flops=flops(deployment.activation_dtype, parameters.mfu_decode),
        attention_flops=(accelerator.flops_per_s(deployment.activation_dtype) * 1e-9
                         * _given(parameters.mfu_attention, measured.attention_frac)),
        kernel_ns=_given(parameters.kernel_latency_us, KERNEL_LATENCY_US) * 1e3,
        attention_ns=_given(parameters.attention_latency_us, measured.attention_us) * 1e3,
        collective_ns=_given(parameters.collective_latency_us, COLLECTIVE_LATENCY_US) * 1e3,
        link_efficiency=_given(parameters.link_efficiency, LINK_EFFICIENCY))


def _given(value: float | None, default: float) -> float:
    return default if value is None else value


def roofline_costs(deployment: Deployment, rate: Rates, prices_collectives: bool = True,
                   prices_exchange: bool = True, reduce: ReduceLaw | None = None) -> RooflineCosts:
    """Return the coefficients of `deployment` at these rates.

    prices_collectives : False if a collective model prices them; the sampler's gather remains.
    prices_exchange : whether to price the exchange of tokens for experts; False if experts.py prices it.
    reduce : law of all-reduces; None: they are priced as other collectives.
    """
    model, ways = deployment.model, deployment.parallelism
    weights, copies = rank_weights(deployment), ways.token_ranks
    dense_flops = 2 * (weights.matrices + _around_weights(model)) / copies
    expert_flops = _expert_flops_per_token(deployment)
    constant_ns, collective_ns = (_collectives(deployment, rate, prices_exchange, reduce) if prices_collectives
                                  else (0.0, 0.0))
    handover_ns, handover_token_ns = _handover(deployment, rate) if prices_collectives else (0.0, 0.0)
    full, window, others = _attention(deployment, rate)
    logits = model.vocab_size / copies
    gather = logits * deployment.activation_bytes * (1 - 1 / ways.tensor_parallel)
    state_bytes, state_flops = states(deployment)
    return RooflineCosts(
        constant_ns=constant_ns + _kernel_ns(deployment, rate),
        collective_ns=constant_ns,
        activation_token_ns=between_bytes_per_token(deployment) / rate.memory_bytes / copies,
        collective_token_ns=collective_ns,
        gather_token_ns=_gather_ns(deployment, rate) if prices_collectives and prices_exchange else 0.0,
        handover_ns=handover_ns,
        handover_token_ns=handover_token_ns,
        dense_prefill_ns=dense_flops / rate.matrix_prefill_flops,
        dense_decode_ns=dense_flops / rate.matrix_decode_flops,
        dense_weights_ns=_dense_bytes(weights) / rate.memory_bytes,
        expert_prefill_ns=expert_flops / rate.expert_prefill_flops,
        expert_decode_ns=expert_flops / rate.expert_decode_flops,
        expert_weights_ns=distinct_experts(deployment) * expert_bytes(weights, deployment) / rate.memory_bytes,
        head_sample_ns=2 * weights.lm_head / copies / rate.plain_flops,
        head_weights_ns=weights.lm_head * weights.head_bytes / rate.memory_bytes,
        sampler_sample_ns=(logits * SAMPLER_BYTES_PER_LOGIT / rate.memory_bytes
                           + _link_ns(deployment, rate, gather, ways.tensor_parallel)),
        full_attention=full,
        window_attention=window,
        other_attention=others,
        state_sequence_ns=2 * state_bytes / rate.memory_bytes / copies,
        state_token_ns=state_flops / rate.attention_flops / copies)


# ---- weights

def _dense_bytes(weights: RankWeights) -> float:
    """Return the bytes of weights used by every token: projections, dense MLPs, shared experts, routers, norms."""
    return weights.matrices * weights.matrix_bytes + weights.unquantized * weights.unquantized_bytes


def _around_weights(model) -> float:
    """Return the weights of products around the parts of layers that are never quantised."""
    return sum(layers * product.n * product.k for layer, layers in layer_kinds(model).items() for part in layer.around
               for product in part.products(model.hidden_size) if not product.is_quantized)


def _expert_flops_per_token(deployment: Deployment) -> float:
    """Return 2 x weights of a token's experts of all layers, spread evenly over the ranks of a stage."""
    model, ways = deployment.model, deployment.parallelism
    if model.moe is None:
        return 0.0
    moe = model.moe
    chosen = model.num_moe_layers * moe.computed_per_token * moe.expert_matrix_parameters(model.hidden_size)
    return 2 * chosen / ways.expert_ranks


def expert_bytes(weights: RankWeights, deployment: Deployment) -> float:
    """Return the bytes on one rank of one expert of all layers."""
    moe = deployment.model.moe
    return weights.experts * weights.expert_bytes / deployment.num_expert_slots if moe else 0.0


def distinct_experts(deployment: Deployment) -> np.ndarray:
    """Return the number of experts of a layer that n = 0, 1, ... tokens need.

    E (1 - (1 - k/E)^n): the expectation for tokens that choose k experts each, independently and evenly. Real routers
    are skewed and load fewer. Source: roofline of inference-sim (BLIS).
    """
    moe = deployment.model.moe
    if moe is None:
        return np.zeros(1)
    total, idle = moe.num_experts, 1 - moe.computed_per_token / moe.num_experts
    length = 2 if idle == 0.0 else int(np.ceil(np.log(IDLE_EXPERTS / total) / np.log(idle))) + 1
    needed = total * (1 - idle ** np.arange(length))
    needed[-1] = total
    return needed


# ---- attention

class PlacedPass(NamedTuple):
    """A pass over the context in some layers.

    part : their mixer. local, attending : as in `_pass_costs`.
    """

    part: Mixer
    layers: int
    local: Pass
    attending: Pass


def passes_of(deployment: Deployment) -> list[PlacedPass]:
    """Return the passes of attention on one rank; equal ones are one.

    With decode context parallelism, a rank attends to its share of the context with the heads of all sharing ranks.
    First is a pass over the whole context, second one over a window, if there are such.
    """
    ways, found = deployment.parallelism, {}
    for part, num_layers, window in deployment.model.attentions:
        passes = (part.shard(ranks).passes(deployment.kv_cache_bytes, window)
                  for ranks in (ways.tensor_parallel, ways.query_parallel))
        for local, attending in zip(*passes, strict=True):
            key = kind_of(part), local, attending, part.num_kv_heads
            first, layers = found.get(key, (part, 0))
            found[key] = first, layers + num_layers
    each = [PlacedPass(part, layers, *key[1:3]) for key, (part, layers) in found.items()]
    whole, windows = ([one for one in each if bool(one.local.window) == has_window] for has_window in (False, True))
    return whole[:1] + windows[:1] + whole[1:] + windows[1:]


def _attention(deployment: Deployment, rate: Rates) -> tuple:
    """Return the costs of a pass over the whole context, of one over a window, and of all others.

    The KV cache of the context is read once per sequence and pass.
    """
    return arranged([(each, _pass_costs(rate, each.layers / deployment.parallelism.token_ranks, each.local,
                                        each.attending)) for each in passes_of(deployment)])


def arranged(costs: list[tuple[PlacedPass, AttentionCosts]]) -> tuple:
    """Return the costs of passes as RooflineCosts has them: whole, window, others.

    InputErrors: there are more than fit.
    """
    first = [next((i for i, (each, _) in enumerate(costs) if bool(each.local.window) == has_window), None)
             for has_window in (False, True)]
    others = tuple(cost for i, (_, cost) in enumerate(costs) if i not in first)
    if len(others) > MOST_OTHER_PASSES:
        raise InputErrors([KeyFault(f'latency.backend: "roofline" prices {MOST_OTHER_PASSES + 2} kinds of passes of '
                                    f"attention at most, found {len(costs)}")])
    return (*(AttentionCosts() if i is None else costs[i][1] for i in first), others)


def _pass_costs(rate: Rates, layers: float, local: Pass, attending: Pass) -> AttentionCosts:
    """Return the costs of a pass in `layers` layers; `attending`: with the heads of all ranks that share a context."""
    kv_ns = layers * local.kv_bytes / rate.memory_bytes
    return AttentionCosts(
        window=float(local.window or UNBOUNDED_TOKENS),
        pair_ns=layers * local.pair_flops / rate.attention_flops,
        expand_ns=layers * local.expand_flops / rate.matrix_prefill_flops,
        latent_pair_ns=layers * local.latent_flops / rate.attention_flops,
        prefill_kv_ns=kv_ns, prefill_context_ns=kv_ns,
        context_flops_ns=layers * attending.decode_flops / rate.attention_flops,
        context_kv_ns=kv_ns)


def states(deployment: Deployment) -> tuple[float, float]:
    """Return the bytes of a sequence's state on one rank, and a token's FLOPs on it."""
    mixers = [(mixer.shard(deployment.parallelism.tensor_parallel), layers)
              for mixer, layers in deployment.model.mixers]
    return (sum(layers * mixer.state_bytes(deployment.activation_bytes) for mixer, layers in mixers),
            sum(layers * mixer.state_flops_per_token for mixer, layers in mixers))


# ---- memory-bound kernels and fixed latencies

def between_bytes_per_token(deployment: Deployment, counts_experts: bool = True) -> float:
    """Return the bytes a token moves between the matrix products, on one rank.

    Norm with residual: 4 h. Token mixer: its input projections read and written once (rotary embedding), read again by
    attention, its output written. Activation: outputs of up (and gate) read, product written. Experts: the token copied
    to each chosen one and their outputs summed, 3 k h + h. KV cache: written once.
    """
    model, ways = deployment.model, deployment.parallelism
    elements = 0.0
    for kind, num_layers in layer_kinds(model).items():
        layer = kind.norms * 4 * model.hidden_size
        layer += sum(part.shard(ways.tensor_parallel).moved_elements(model.hidden_size) for part in dense_parts(kind))
        moe = kind.moe
        if moe and counts_experts:
            chosen = moe.computed_per_token / ways.expert_ranks
            layer += chosen * moe.expert.num_matrices * moe.intermediate_size
            layer += (3 * moe.experts_per_token + 1) * moe.expert_width(model.hidden_size)
        elements += num_layers * layer
    cached = sum(count * mixer.shard(ways.tensor_parallel).kv_elements_per_token for mixer, count in model.mixers)
    return elements * deployment.activation_bytes + cached * deployment.kv_cache_bytes


def _kernel_ns(deployment: Deployment, rate: Rates) -> float:
    """Return the latency of all kernels of an iteration."""
    model = deployment.model
    kernels = (ITERATION_KERNELS + sum(layers * mixer.kernels for mixer, layers in model.mixers)
               + DENSE_KERNELS * model.num_dense_layers + MOE_KERNELS * model.num_moe_layers)
    return kernels * rate.kernel_ns + sum(layers for _, layers, _ in model.attentions) * rate.attention_ns


# ---- communication

def _collectives(deployment: Deployment, rate: Rates, prices_exchange: bool,
                 reduce: ReduceLaw | None) -> tuple[float, float]:
    """Return (ns per iteration, ns per token) of all communication except the sampler's; stages run in sequence."""
    fixed_ns = volume_ns = 0.0
    for each in exchanges(deployment):
        if each.group in EXPERT_GROUPS and not prices_exchange:
            continue
        latency_ns, token_ns = rate.collective_ns, _link_ns(deployment, rate, each.sent_bytes, each.span)
        if reduce and each.kind == "all_reduce":
            latency_ns, share = reduce.of(each.span)
            token_ns *= rate.link_efficiency / share
        fixed_ns += each.count * latency_ns
        volume_ns += each.count * token_ns
    return fixed_ns, volume_ns


def _gather_ns(deployment: Deployment, rate: Rates) -> float:
    """Return the ns per token of the gathers of data-parallel ranks for their experts."""
    return sum(each.count * _link_ns(deployment, rate, each.sent_bytes, each.span)
               for each in exchanges(deployment) if each.group == "data")


def _handover(deployment: Deployment, rate: Rates) -> tuple[float, float]:
    """Return (ns, ns per token) of one hand-over to the next stage."""
    for each in exchanges(deployment):
        if each.group == "pipeline":
            return rate.collective_ns, _link_ns(deployment, rate, each.sent_bytes, each.span)
    return 0.0, 0.0


def _link_ns(deployment: Deployment, rate: Rates, num_bytes: float, ranks: int) -> float:
    """Return the time to send `num_bytes` from one accelerator of a group; 0 for a group of one."""
    if ranks == 1 or num_bytes == 0.0:
        return 0.0
    return num_bytes / (link_bytes_per_s(deployment, ranks) * 1e-9 * rate.link_efficiency)


def link_bytes_per_s(deployment: Deployment, ranks: int) -> float:
    """Return the bandwidth of the slowest link in a group of `ranks` accelerators.

    Bytes/s per direction and accelerator: the scale-up fabric if the group fits one domain of the node, PCIe between
    domains of one node, the network between nodes.

    Raises
    ------
    ValueError
        Neither node nor accelerator names a link.
    """
    node, accelerator = deployment.node, deployment.accelerator
    if node is None:
        candidates = [accelerator.scaleup_bytes_per_s, accelerator.pcie_bytes_per_s]
    elif ranks <= node.scaleup_domain_size:
        candidates = [node.scaleup_bytes_per_s]
    elif ranks <= node.num_accelerators:
        candidates = [accelerator.pcie_bytes_per_s]
    else:
        candidates = [node.scaleout_bytes_per_s, accelerator.scaleout_bytes_per_s]
    for bandwidth in candidates:
        if bandwidth > 0.0:
            return bandwidth
    raise ValueError(f"no link is known between {ranks} accelerators {accelerator.name}; name a node in [topology]")
