"""The coefficients of the roofline from laws of single operators, instead of one share of peak for all sizes.

Products, experts and head become tables over the rows of an iteration; attention keeps its sums, with padded tiles,
work items and floors added; kernels in between take bytes / (0.8 x bandwidth) + 3 us a kernel, aiconfigurator's
constants for all systems (mem_bw_empirical_scaling_factor, mem_empirical_constant_latency). Attention of other kinds,
and recurrences, have the laws of kind_laws.py, or keep their shares of peak.
"""
from typing import NamedTuple

import msgspec
import numpy as np

from simulator.domain.deployment import Deployment
from simulator.domain.dtypes import DTYPE_BITS
from simulator.domain.efficiency import KERNEL_LATENCY_US
from simulator.domain.layers.base import Product
from simulator.domain.rank_weights import dense_parts, head_product, layer_kinds
from simulator.experts.pricing import ExpertPricing
from simulator.experts.traffic import GATHER, distinct
from simulator.latency.roofline.costs import (
    AttentionCosts,
    PlacedPass,
    Rates,
    RooflineCosts,
    arranged,
    between_bytes_per_token,
    distinct_experts,
    passes_of,
)
from simulator.latency.roofline.kind_laws import NONE, KindLaw, kind_law, kind_of
from simulator.latency.roofline.laws import LAWS, Generation, Law, generation_of, law_of, moved_between

MOST_ROWS = 8192                # of the tables; beyond them, extrapolated from their second half
ROWS = np.arange(MOST_ROWS + 1.0)
MOST_KEPT = 16                  # number of cached deployments
BETWEEN_FRAC = 0.8              # of memory bandwidth
# Kernels between products and attention, beside those of parts. Experts: norm, choice of experts. Iteration: embedding,
# last norm, sampling (two).
EXPERTS, ITERATION = 2, 4


class Pricer:
    """Laws of one deployment's accelerator.

    Parameters
    ----------
    deployment : Deployment
    generation : Generation
        The laws of its accelerator.
    rate : Rates
        By shares of peak, of recurrences.
    """

    def __init__(self, deployment: Deployment, generation: Generation, rate: Rates | None = None):
        self._deployment, self._generation, self._rate = deployment, generation, rate
        self._name = generation_of(deployment.accelerator)[0]
        self._bandwidth = deployment.accelerator.memory_bandwidth_bytes_per_s * 1e-9

    def law(self, operator: str, stored: str, multiplied: str) -> Law:
        """Return the law of weights stored in one format and multiplied in another.

        For weights narrower than their compute format, which tables hold for experts only, idle rows have no
        price: their kernels are made for few rows, which wait for the weights.
        """
        computed = self._deployment.accelerator.compute_dtype(multiplied)
        if operator == "experts" and stored in ("fp4", "int4") and computed not in (stored, multiplied):
            return law_of(self._generation, operator, "weight_only")
        law = law_of(self._generation, operator, computed)
        return msgspec.structs.replace(law, pad_rows=0.0) if DTYPE_BITS[computed] > DTYPE_BITS[stored] else law

    def product(self, product: Product, rows: np.ndarray) -> np.ndarray:
        """Return the ns of a product over `rows`."""
        deployment = self._deployment
        stored = deployment.matrix_dtype if product.is_quantized else deployment.activation_dtype
        multiplied = deployment.matrix_product_dtype if product.is_quantized else stored
        width = deployment.matrix_bytes if product.is_quantized else deployment.activation_bytes
        peak = deployment.accelerator.flops_per_s(multiplied) * 1e-9
        return self.law("products", stored, multiplied).ns(peak, self._bandwidth, rows, product.n, product.k, width)

    def experts(self, tokens: np.ndarray, imbalance, needed: np.ndarray, are_gathered: bool = True) -> np.ndarray:
        """Return the ns of the routed experts of one layer on a rank.

        imbalance : work of the busiest rank, times the mean. needed : experts of a rank. are_gathered : a rank has the
        tokens of all ranks; False: those that chose an expert of it.
        """
        deployment, ways = self._deployment, self._deployment.parallelism
        moe, multiplied = deployment.model.moe, deployment.expert_product_dtype
        peak = deployment.accelerator.flops_per_s(multiplied) * 1e-9
        rows = tokens * (moe.computed_per_token / ways.expert_parallel) * imbalance
        width = moe.intermediate_size * ways.expert_parallel / ways.expert_ranks
        hidden = moe.expert_width(deployment.model.hidden_size)
        present = 1.0 if are_gathered else distinct(ways.expert_parallel, moe.experts_per_token) / ways.expert_parallel
        return self.law("experts", deployment.expert_dtype, multiplied).ns(
            peak, self._bandwidth, rows, needed, moe.expert.num_matrices * hidden * width,
            deployment.expert_bytes, moved_between(tokens * present, rows, hidden, moe.expert.num_matrices * width))

    def kind_law(self, part) -> KindLaw:
        """Return the law of a mixer that has none in Generation; it may be empty."""
        return NONE if part.error_key in LAWS else kind_law(self._name, kind_of(part))

    def attention(self, costs: AttentionCosts, placed: PlacedPass) -> AttentionCosts:
        """Return the costs of a pass by law, given its costs by shares of peak."""
        part, num_layers = placed.part, placed.layers
        if part.error_key not in LAWS:
            return self._of_kind(costs, placed, self.kind_law(part))
        deployment, ways = self._deployment, self._deployment.parallelism
        peak = deployment.accelerator.flops_per_s(deployment.activation_dtype) * 1e-9
        cache = "fp8" if deployment.kv_cache_bytes == 1 else "bfloat16"
        prefill, decode = (law_of(self._generation, phase, cache) for phase in ("prefill", "decode"))
        local, attending = part.shard(ways.tensor_parallel), part.shard(ways.query_parallel)
        layers = num_layers / ways.token_ranks
        kv_ns = layers * sum(local.read_widths) * deployment.kv_cache_bytes / self._bandwidth
        moved = layers * local.num_heads * (local.head_dim + local.value_dim) * deployment.activation_bytes
        return msgspec.structs.replace(
            costs, pair_ns=layers * local.flops_per_context_token / (peak * prefill.compute_frac),
            tile_tokens=prefill.tile_tokens, prefill_kv_ns=kv_ns / prefill.memory_frac,
            prefill_context_ns=kv_ns / decode.memory_frac,
            prefill_query_ns=moved / (self._bandwidth * prefill.memory_frac),
            prefill_floor_ns=num_layers * prefill.floor_us * 1e3,
            context_flops_ns=layers * attending.decode_flops_per_context_token / (peak * decode.compute_frac),
            context_kv_ns=kv_ns / decode.memory_frac,
            sequence_ns=layers * local.num_kv_heads * decode.head_ns,
            decode_floor_ns=num_layers * decode.floor_us * 1e3)

    def _of_kind(self, costs: AttentionCosts, placed: PlacedPass, law: KindLaw) -> AttentionCosts:
        if law == NONE:
            return costs
        deployment = self._deployment
        peak = deployment.accelerator.flops_per_s(deployment.activation_dtype) * 1e-9
        layers = placed.layers / deployment.parallelism.token_ranks
        costs = msgspec.structs.replace(costs, joins_decodes=True)
        if law.prefill:
            rate = peak * law.prefill.compute_frac
            costs = msgspec.structs.replace(
                costs, pair_ns=layers * placed.local.pair_flops / rate,
                latent_pair_ns=layers * placed.local.latent_flops / rate,
                tile_tokens=0.0 if placed.local.window else law.prefill.tile_tokens)
        if law.decode:
            costs = msgspec.structs.replace(
                costs, context_flops_ns=layers * placed.attending.decode_flops / (peak * law.decode.compute_frac),
                context_kv_ns=layers * placed.local.kv_bytes / (self._bandwidth * law.decode.memory_frac))
        return costs

    def beside_passes(self) -> AttentionCosts:
        """Return the costs of all mixers beside their passes, of laws of their kinds.

        Floors, passes over queries and outputs, and a recurrence's work on tokens beside the last of each chunk.
        """
        deployment, ways = self._deployment, self._deployment.parallelism
        token_ns = sequence_ns = prefill_floor_ns = decode_floor_ns = 0.0
        for part, num_layers in deployment.model.mixers:
            law, local = self.kind_law(part), part.shard(ways.tensor_parallel)
            layers = num_layers / ways.token_ranks
            widths = 0 if part.backend == "state" else local.num_heads * (local.head_dim + local.value_dim)
            pass_ns = layers * widths * deployment.activation_bytes / self._bandwidth
            token_ns += layers * self._state_token_ns(local, law)
            if law.prefill:
                token_ns += pass_ns * law.prefill.passes
                prefill_floor_ns += num_layers * law.prefill.floor_us * 1e3
            if law.decode:
                sequence_ns += pass_ns * law.decode.passes
                decode_floor_ns += num_layers * law.decode.floor_us * 1e3
            elif law != NONE and part.backend != "state":
                decode_floor_ns += num_layers * self._rate.attention_ns
        return AttentionCosts(prefill_query_ns=token_ns, prefill_floor_ns=prefill_floor_ns, sequence_ns=sequence_ns,
                              decode_floor_ns=decode_floor_ns, joins_decodes=True)

    def _state_token_ns(self, local, law: KindLaw) -> float:
        """Return the ns of a prompt's token in one recurrent layer of a rank, of kinds with a law; else 0."""
        if law == NONE:
            return 0.0
        deployment = self._deployment
        peak = deployment.accelerator.flops_per_s(deployment.activation_dtype) * 1e-9
        return local.state_flops_per_token / (
            peak * law.prefill.compute_frac if law.prefill else self._rate.attention_flops)

    def states(self, costs: RooflineCosts) -> tuple[float, float]:
        """Return ns per sequence and per prompt token of all recurrences.

        Tokens of kinds with a law are in `beside_passes`. costs : by shares of peak, of mixers without a law.
        """
        deployment = self._deployment
        parts = [(part, layers, self.kind_law(part)) for part, layers in deployment.model.mixers
                 if part.backend == "state"]
        if not any(law != NONE for _, _, law in parts):
            return costs.state_sequence_ns, costs.state_token_ns
        ways, sequence_ns, token_ns = deployment.parallelism, 0.0, 0.0
        for part, layers, law in parts:
            local = part.shard(ways.tensor_parallel)
            memory = self._bandwidth * law.decode.memory_frac if law.decode else self._rate.memory_bytes
            sequence_ns += layers * 2 * local.state_bytes(deployment.activation_bytes) / memory / ways.token_ranks
            if law == NONE:
                token_ns += layers * local.state_flops_per_token / self._rate.attention_flops / ways.token_ranks
        return sequence_ns, token_ns


def with_laws(costs: RooflineCosts, deployment: Deployment, rate: Rates, generation: Generation,
              experts: ExpertPricing | None = None) -> RooflineCosts:
    """Return the coefficients by laws, given the coefficients by shares of peak.

    experts : None: evenly loaded, and their tokens gathered.
    """
    pricer, model, copies = Pricer(deployment, generation, rate), deployment.model, deployment.parallelism.token_ranks
    are_gathered = experts is None or copies == 1 or experts.all2all_backend == GATHER
    tables = _even_tables(deployment, generation, are_gathered)
    between = BETWEEN_FRAC * deployment.accelerator.memory_bandwidth_bytes_per_s * 1e-9
    passes, known = passes_of(deployment), iter(costs.other_attention)
    firsts = {False: costs.full_attention, True: costs.window_attention}
    priced = [(each, pricer.attention(firsts.pop(bool(each.local.window), None) or next(known), each))
              for each in passes]
    full, window, others = arranged(priced)
    beside = pricer.beside_passes()
    state_sequence_ns, state_token_ns = pricer.states(costs)
    return msgspec.structs.replace(
        costs,
        constant_ns=(costs.collective_ns + _kernels(model) * KERNEL_LATENCY_US * 1e3
                     + sum(layers for part, layers, _ in model.attentions
                           if part.error_key not in LAWS and pricer.kind_law(part) == NONE) * rate.attention_ns),
        activation_token_ns=between_bytes_per_token(deployment, counts_experts=False) / between / copies,
        dense_ns=tables.dense_ns, head_ns=tables.head_ns, even_experts_ns=tables.experts_ns,
        experts_ns=(tables.experts_ns if experts is None
                    else _table(_experts(pricer, deployment, ROWS, experts.load, are_gathered))),
        state_sequence_ns=state_sequence_ns, state_token_ns=state_token_ns,
        full_attention=full, window_attention=window,
        other_attention=others if beside == AttentionCosts(joins_decodes=True) else (*others, beside))


class _Tables(NamedTuple):
    """Times of an iteration by its rows, ns, float64 (MOST_ROWS + 1,), with experts evenly loaded; read only."""

    dense_ns: np.ndarray
    experts_ns: np.ndarray
    head_ns: np.ndarray


_known: tuple[tuple[tuple[Deployment, Generation, bool], _Tables], ...] = ()   # compared one by one: no key has a hash


def _even_tables(deployment: Deployment, generation: Generation, are_gathered: bool) -> _Tables:
    """Return the tables of a deployment; the last few are cached, since the runs of a study mostly share them."""
    global _known
    asked = deployment, generation, are_gathered
    for known, tables in _known:
        if known == asked:
            return tables
    pricer, model, ways = Pricer(deployment, generation), deployment.model, deployment.parallelism
    rows = ROWS / ways.token_ranks
    tables = _Tables(_table(_dense(pricer, model, deployment, rows)),
                     _table(_experts(pricer, deployment, ROWS, None, are_gathered)),
                     _table(pricer.product(head_product(model, ways.tensor_parallel), rows)))
    _known = ((asked, tables), *_known[:MOST_KEPT - 1])
    return tables


def _dense(pricer: Pricer, model, deployment: Deployment, rows: np.ndarray) -> np.ndarray:
    """Return the time of the products of every token, routers included, by rows of a rank."""
    total = np.zeros(len(rows))
    for layer, count in layer_kinds(model).items():
        ways = deployment.parallelism.tensor_parallel
        products = [product._replace(is_quantized=product.is_quantized and not deployment.leaves(name))
                    for name, part in layer.named_parts() for product in part.shard(ways).products(model.hidden_size)]
        if moe := layer.moe:
            products.append(moe.router_product(model.hidden_size))
        for product in products:
            total += count * pricer.product(product, rows)
    return total


def _experts(pricer: Pricer, deployment: Deployment, tokens: np.ndarray, load, are_gathered: bool) -> np.ndarray:
    if deployment.model.moe is None:
        return np.zeros(len(tokens))
    needed, imbalance = distinct_experts(deployment) / deployment.parallelism.expert_parallel, 1.0
    if load is not None:
        needed, imbalance = load.activated, load.imbalance[:len(tokens)]
    needed = needed[np.minimum(tokens, len(needed) - 1).astype(int)]
    return deployment.model.num_moe_layers * pricer.experts(tokens, imbalance, needed, are_gathered)


def _table(ns: np.ndarray) -> np.ndarray:
    """Return times by rows as a read-only array; 0 rows take 0 ns."""
    ns[0] = 0.0
    ns.flags.writeable = False
    return ns


def _kernels(model) -> int:
    """Return the kernels of an iteration that only move memory."""
    count = ITERATION
    for layer, layers in layer_kinds(model).items():
        each = max(layer.norms - 2, 0) + EXPERTS * (layer.moe is not None)
        count += layers * (each + sum(part.between_kernels for part in dense_parts(layer)))
    return count
