"""Time of an iteration of a deployment by operator, as tables over the sums that describe a batch.

T tokens of an iteration on one rank, t tensor-parallel ranks. A layer: qkv product, rotary embedding with KV write,
attention, output product; router, routed and shared experts, or up (and gate) product, activation, down product; norms;
all-reduces after mixer and network if t > 1. Norms of queries and keys if the
model has them; quantising of attention's outputs with fp8 weights. Once: embedding, last norm; head and sampler over
sampled rows. Between
stages: T x hidden elements. Experts over data-parallel ranks: tokens gathered, outputs scattered, or dispatched and
combined by DeepEP.

Operators between the products that are in no table: bytes / (0.8 x memory bandwidth) + 3 us, the empirical constants of
aiconfigurator's system files. Times of pipeline stages add up.
"""
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulator.domain.deployment import Deployment
from simulator.domain.layer_list import Layer
from simulator.domain.layers.base import Product, Small
from simulator.domain.layers.networks import Moe
from simulator.domain.rank_weights import head_product, layer_kinds
from simulator.errors import InputErrors, KeyFault
from simulator.latency.operators import prices
from simulator.latency.operators.attention import CONTEXT_NODES, decode_table, decodes_by_kind, prefill_table
from simulator.latency.operators.curves import ROOFLINE, Times
from simulator.latency.operators.database import Database
from simulator.latency.operators.exchanges import GATHER, domain_times, exchange_times
from simulator.latency.operators.fused_norms import TABLE, largest_message
from simulator.latency.operators.hyper_connections import stream_times
from simulator.latency.operators.links import LEAST_BYTES, over_link
from simulator.latency.operators.mixed_attention import mixed_table
from simulator.latency.operators.prefixes import Behind
from simulator.latency.operators.product_formats import fixes_scales, gemm_format, scales_tokens
from simulator.latency.operators.products import with_fixed_scales
from simulator.latency.operators.recurrences import WHOLE, has_convolution, is_measured
from simulator.latency.operators.scales import scale_times
from simulator.latency.operators.split_norms import SUM_BYTES, exchange_of
from simulator.latency.operators.unequal_contexts import shares_table
from simulator.latency.operators.wide_experts import shared_expert_times
from simulator.latency.roofline.costs import SAMPLER_BYTES_PER_LOGIT, Rates, distinct_experts, link_bytes_per_s

MAX_TOKENS = 32768              # tokens of an iteration on a rank: the range of measured products
# Operators that each data-parallel rank applies to the tokens of all ranks.
OF_ALL_RANKS = ("experts", "imbalance", "expert_all_gather", "expert_reduce_scatter")
MAX_SAMPLES = 8192
COMMUNICATION = {"all_reduce", "expert_all_gather", "expert_reduce_scatter", "expert_dispatch", "expert_combine",
                 "send_recv", "logits_all_gather"}
MEASURED_TOGETHER = {"qk_norm"}         # operators of several kernels, timed as one in a profile
ORIGINS = ("measured", "interpolated", "extrapolated", "roofline")      # best first
POINTS_PER_OCTAVE = 8           # message sizes at which a collective model is called


@dataclass(frozen=True)
class IterationTables:
    """Nanoseconds of all layers and stages.

    Arrays named origins, uint8, hold the worst origin of the operators.
    """

    tokens_ns: dict[str, np.ndarray]        # by operator, (MAX_TOKENS + 1,)
    tokens_origins: np.ndarray
    samples_ns: dict[str, np.ndarray]       # by operator, (MAX_SAMPLES + 1,), by sampled rows
    samples_origins: np.ndarray
    decode: Times                           # (sequences + 1, context nodes): attention of decodes
    mixed: Times                            # as decode: attention of decodes beside prompts
    prefill: Times                          # (log2 prompts + 1, tokens + 1): attention of prompts of equal length
    state_sequence_ns: float                # linear attention: per sequence
    state_token_ns: float                   # and per prompt token
    origins: dict[str, str]                 # operator -> measured, interpolated, ...
    reading: Times | None = None            # as decode: context of few new tokens of a prompt; None: use decode
    unequal: np.ndarray | None = None       # see unequal_contexts.py; None: not measured
    behind: Behind | None = None            # see prefixes.py; None: chunks are differences of prompts


class Composer:
    """Price the operators of one deployment.

    Parameters
    ----------
    parameters : OperatorsParameters
    rate : Rates
        Rates of the roofline, which prices operators without a table.
    collective : CollectiveModel
        Times the communication; None: the tables time it.
    """

    def __init__(self, database: Database, parameters, deployment: Deployment, rate: Rates, collective=None):
        self.database, self.parameters, self.deployment, self.rate = database, parameters, deployment, rate
        self.collective = collective
        self.tokens = np.arange(MAX_TOKENS + 1.0)
        self.missing: dict[str, str] = {}           # operator -> description of the missing measurement
        self.origins: dict[str, str] = {}
        self._tokens_ns: dict[str, np.ndarray] = {}
        self._tokens_origins = np.zeros(MAX_TOKENS + 1, dtype=np.uint8)

    def compose(self) -> IterationTables:
        """Return the tables.

        Raises
        ------
        InputErrors
            An operator was not measured, and `missing` is "error". Kinds of mixers without tables are priced as the
            roofline does, with a note.
        """
        model = self.deployment.model
        self.database.notes += self.deployment.product_notes()
        for layer, count in layer_kinds(model).items():
            self._add_layer(layer, count)
        self._add_once()
        self._add_handover()
        samples_ns, samples_origins = self._samples()
        by_kind = decodes_by_kind(self)
        decode, (prefill, behind) = decode_table(by_kind), prefill_table(self)
        is_left_out = prices.MIXED_ATTENTION in self.parameters.without
        mixed = decode if is_left_out else mixed_table(self, decode, by_kind, CONTEXT_NODES)
        state = self._state()
        if self.collective is not None:
            self.origins.update(dict.fromkeys(COMMUNICATION & self.origins.keys(), "collective"))
        if self.missing and self.parameters.missing == "error":
            raise InputErrors([f"{self.parameters.path or 'aiconfigurator-core'}: {name}: {what}"
                               for name, what in self.missing.items()])
        return IterationTables(
            tokens_ns=self._tokens_ns, tokens_origins=self._tokens_origins, samples_ns=samples_ns,
            samples_origins=samples_origins, decode=decode, mixed=mixed, prefill=prefill,
            state_sequence_ns=state[0], state_token_ns=state[1], origins=self.origins,
            unequal=shares_table(self), behind=behind)

    # ---- layers

    def _add_layer(self, layer: Layer, count: int) -> None:
        ways, hidden, moe = self.deployment.parallelism, self.deployment.model.hidden_size, layer.moe
        if layer.norms:
            self._small("norms", layer.norms * 4 * hidden, count, kernels=layer.norms)
        for name, part in layer.named_parts():
            if name != "shared_experts" or not self._add_shared_expert(part, count):
                self._add_part(part, count, not self.deployment.leaves(name))
        if moe is not None:
            self._add_product(moe.router_product(hidden), count)
            self._add_experts(moe, count)
        if ways.tensor_parallel > 1:
            self._add_all_reduces(layer, count)

    def _add_all_reduces(self, layer: Layer, count: int) -> None:
        """Add the all-reduces of a layer; see fused_norms.py."""
        ranks, hidden = self.deployment.parallelism.tensor_parallel, self.deployment.model.hidden_size
        times = self._collective("tensor", "all_reduce", ranks, hidden)
        num_bytes = self.tokens * hidden * self.deployment.activation_bytes
        is_fused = num_bytes <= largest_message(self.deployment, self.parameters)
        fused = self.database.collective(TABLE, ranks, num_bytes, True) if is_fused.any() else None
        if (fused is not None and self.collective is None and prices.FUSED_NORMS not in self.parameters.without
                and self.origins.get("norms") == "formula"):
            times = Times(np.where(is_fused, fused.ns, times.ns), np.where(is_fused, fused.origins, times.origins))
            norms = count * min(layer.norms, layer.num_sublayers)
            launches = np.where(is_fused, norms * self.database.small_ns(0.0, self.tokens), 0.0)
            self._tokens_ns["norms"] = self._tokens_ns["norms"] - self._nothing_for_nothing(launches)
        self._add("all_reduce", times, count * layer.num_sublayers)

    def _add_part(self, whole, count: int, is_quantized: bool) -> None:
        part = whole.shard(self.deployment.parallelism.tensor_parallel)
        if part.is_around and self._add_streams(part, count):
            return
        for product in part.products(self.deployment.model.hidden_size):
            self._add_product(product._replace(is_quantized=product.is_quantized and is_quantized), count)
        for small in self._small_operators(part):
            if small.name in self.parameters.without or (
                    small.name == "qk_norm" and self._add_split_norm(whole, part, count)):
                continue
            self._small(small.name, small.elements, count, small.kernels)
        if part.quantizes_output and is_quantized:
            self._add_quantizing(part.output_width, count)

    def _add_streams(self, part, count: int) -> bool:
        """Add the streams that a part moves; return whether a table held its products, too."""
        hidden = self.deployment.model.hidden_size
        times = stream_times(self.database, part, hidden, self.tokens)
        if times is not None:
            self._add(part.price_key, times, count)
            return True
        self._small(*part.stream_operator(hidden)[:2], count, part.between_kernels)
        return False

    def _add_split_norm(self, whole, part, count: int) -> bool:
        """Add norms over the heads of all ranks; return whether there are such. See split_norms.py."""
        exchange = exchange_of(whole, self.deployment, self.parameters, self.tokens)
        elements = 2 * (whole if exchange and exchange.gathers else part).normed_elements
        if (exchange is None or prices.SPLIT_NORMS in self.parameters.without
                or self.database.small("qk_norm", elements / 2, self.tokens) is not None):
            return False
        element_bytes, ranks = self.deployment.activation_bytes, self.deployment.parallelism.tensor_parallel
        if exchange.gathers:
            for heads in (whole.num_heads, whole.num_kv_heads):
                self._add("qk_norm", self._collective("tensor", "all_gather", ranks, heads * whole.head_dim), count)
        else:
            sums = self._collective("tensor", "all_reduce", ranks, SUM_BYTES / element_bytes)
            self._add("qk_norm", sums, count * exchange.reduces)
        ns = self.database.small_ns(elements * element_bytes, self.tokens, 0) + exchange.kernels * (
            self.database.small_ns(0.0, self.tokens))
        self._tokens_ns["qk_norm"] = self._tokens_ns["qk_norm"] + self._nothing_for_nothing(ns) * count
        self.database.hear_formula("qk_norm")
        return True

    def _add_shared_expert(self, part, count: int) -> bool:
        """Add a shared expert that was measured whole; return whether it was."""
        deployment = self.deployment
        if part.price_key is not None or deployment.parallelism.tensor_parallel > 1 or not part.matrices(1):
            return False
        dtype = gemm_format(deployment.matrix_dtype, deployment.quantization)
        times = shared_expert_times(self.database, self.parameters, deployment.model.hidden_size, part, dtype,
                                    self.tokens)
        if times is not None:
            self._add("shared_experts", times, count)
        return times is not None

    def _small_operators(self, part) -> list[Small]:
        """Return the operators between the products of a part; without a convolution that tables hold."""
        if part.is_around:
            return []
        if not has_convolution(self.database, part):
            return part.small_operators
        moved = 2 * part.convolution[0]         # each channel is read and written
        kernels = 1 + is_measured(self.database, part)          # with the recurrence
        return [small._replace(elements=small.elements - moved, kernels=small.kernels - kernels)
                for small in part.small_operators]

    def _add_quantizing(self, width: int, count: int) -> None:
        """Add the quantising of attention's outputs to fp8.

        As compiled by vLLM, the norm or activation before another product quantises its inputs. A format of
        compressed-tensors has a scale a token, which is found first.
        """
        is_left_out = prices.QUANTIZING in self.parameters.without or not self.deployment.multiplies_fp8
        if self.deployment.matrix_dtype != "fp8" or not self.database.is_of_vllm or is_left_out:
            return
        times = self.database.quantizing(width, self.tokens)
        if times is not None:
            self._add("quantizing", times, count)
            scales = scales_tokens(self.deployment.quantization) and scale_times(self.database, width, self.tokens)
            if scales:
                self._add("quantizing", scales, count)
        else:
            self._small("quantizing", 1.5 * width, count)

    def _add_product(self, product: Product, count: int) -> None:
        self._add(product.name, self.product_times(product, self.tokens), count)

    def product_times(self, product: Product, rows: np.ndarray) -> Times:
        """Return the times of a product over `rows`."""
        deployment = self.deployment
        dtype = deployment.matrix_dtype if product.is_quantized else deployment.activation_dtype
        name = gemm_format(dtype, deployment.matrix_quantization if product.is_quantized else None)
        with np.errstate(divide="ignore", invalid="ignore"):
            times = self.database.gemm_like(name, product.n, product.k, rows)
            if times is not None and name == "fp8" and self._fixes_scales:
                light_ns = self.database.product_tables.light(name)((product.n, product.k), rows)
                return with_fixed_scales(self.database, times, product.k, rows, light_ns)
        if times is not None:
            return times
        self.missing[product.name] = f"no {name} product of n = {product.n:g}, k = {product.k:g}, nor one near it"
        flops = self.rate.matrix_prefill_flops if product.is_quantized else self.rate.plain_flops
        weight_bytes = deployment.matrix_bytes if product.is_quantized else deployment.activation_bytes
        size = product.n * product.k
        return self._roofline(rows, np.maximum(2 * rows * size / flops, size * weight_bytes / self.rate.memory_bytes))

    @property
    def _fixes_scales(self) -> bool:
        return (self.parameters.framework == "trtllm" and fixes_scales(self.deployment.matrix_quantization)
                and prices.FIXED_SCALES not in self.parameters.without)

    def _add_experts(self, moe: Moe, count: int) -> None:
        deployment, ways = self.deployment, self.deployment.parallelism
        ranks, hidden = ways.expert_ranks, moe.expert_width(deployment.model.hidden_size)
        tokens = self.tokens * (ways.token_ranks * moe.computed_per_token / moe.experts_per_token)
        dtype = gemm_format(deployment.expert_dtype, deployment.expert_quantization)
        site = (hidden, moe.intermediate_size, moe.experts_per_token, moe.num_experts,
                ranks // ways.expert_parallel, ways.expert_parallel)
        with np.errstate(divide="ignore", invalid="ignore"):
            times = self.database.moe(dtype, site, tokens)
        if times is None:
            self.missing["experts"] = (
                f"no {dtype} experts of (hidden, intermediate, chosen, experts, TP, EP) = {site}, "
                f"{self.parameters.expert_load}, nor any near them")
            times = self._roofline_experts(moe, tokens, ranks)
        self._add("experts", times, count)
        if ways.token_ranks > 1:
            for name, exchange in self._exchanges(moe, ranks).items():
                self._add(f"expert_{name}", exchange, count)

    def _exchanges(self, moe: Moe, ranks: int) -> dict[str, Times]:
        """Return the exchanges of tokens with their experts over data-parallel ranks.

        With DeepEP, each tensor-parallel rank sends its part of the tokens; the time of gathering the parts is taken to
        be in the all-reduce after the network.
        """
        deployment, ways = self.deployment, self.deployment.parallelism
        hidden = moe.expert_width(deployment.model.hidden_size)
        mode = self.parameters.all2all_backend or GATHER
        if mode == GATHER:
            return {name: self._collective("expert", name, ranks, hidden * ways.token_ranks)
                    for name in ("all_gather", "reduce_scatter")}
        if ways.expert_parallel != ranks:
            raise InputErrors([KeyFault(
                f'latency.all2all_backend: "{mode}" needs topology.expert_parallel = tensor_parallel x data_parallel = '
                f'{ranks}, found {ways.expert_parallel}')])
        tokens = np.ceil(self.tokens / ways.tensor_parallel)
        site = (hidden, moe.experts_per_token, moe.num_experts)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = None if self.collective else exchange_times(
                self.database, mode, ranks, site, tokens, deployment.expert_dtype)
            if found is None and self.collective is None and self._is_in_domain(ranks):
                found = domain_times(self.database, mode, ranks, site, tokens)
        if found is not None:
            return found
        if self.collective is None:
            self.missing["expert exchange"] = f"no {mode} of {ranks} ranks, (hidden, chosen, experts) = {site}"
        sent = hidden * moe.experts_per_token / ways.tensor_parallel
        return {name: self._collective("expert", "all_to_all", ranks, sent) for name in ("dispatch", "combine")}

    def _is_in_domain(self, ranks: int) -> bool:
        """Return whether ranks share one scale-up domain; without a node, all do (config/nodes.py)."""
        node, link = self.deployment.node, self.deployment.accelerator.scaleup_bytes_per_s
        return link > 0 if node is None else ranks <= node.scaleup_domain_size

    def _roofline_experts(self, moe: Moe, tokens: np.ndarray, ranks: int) -> Times:
        weights = moe.expert_matrix_parameters(self.deployment.model.hidden_size) / ranks
        distinct = distinct_experts(self.deployment)
        loaded = distinct[np.minimum(tokens, len(distinct) - 1).astype(int)]
        return self._roofline(tokens, np.maximum(
            2 * tokens * moe.computed_per_token * weights / self.rate.expert_prefill_flops,
            loaded * weights * self.deployment.expert_bytes / self.rate.memory_bytes), kernels=4)

    # ---- once an iteration

    def _add_once(self) -> None:
        hidden = self.deployment.model.hidden_size
        self._small("embedding", 2 * hidden, 1)
        self._small("norms", 4 * hidden, 1)

    def _add_handover(self) -> None:
        hops = self.deployment.parallelism.pipeline_parallel - 1
        if hops:
            times = self._collective("pipeline", "send_recv", 2, self.deployment.model.hidden_size)
            self._tokens_ns["send_recv"] = self._nothing_for_nothing(times.ns) * hops
            self.database.hear("send_recv", times)
            self.origins["send_recv"] = "formula"

    def _samples(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        model, ways = self.deployment.model, self.deployment.parallelism
        rows = np.arange(MAX_SAMPLES + 1.0)
        head = self.product_times(head_product(model, ways.tensor_parallel), rows)
        self._describe("lm_head", head)
        sampler = self.database.small("sampler", model.vocab_size * SAMPLER_BYTES_PER_LOGIT / 2, rows)
        sampler_ns = self.database.small_ns(model.vocab_size * SAMPLER_BYTES_PER_LOGIT, rows, kernels=2)
        found = {"lm_head": head.ns, "sampler": sampler.ns if sampler else sampler_ns}
        if sampler:
            self.database.hear("sampler", sampler)
        else:
            self.database.hear_formula("sampler")
        origins = np.maximum(head.origins, sampler.origins) if sampler else head.origins
        if ways.tensor_parallel > 1:
            gather = self._collective("tensor", "all_gather", ways.tensor_parallel, model.vocab_size, rows)
            self._describe("logits_all_gather", gather)
            found["logits_all_gather"], origins = gather.ns, np.maximum(origins, gather.origins)
        for ns in found.values():
            ns[0] = 0.0
        return found, origins

    def _state(self) -> tuple[float, float]:
        """Return the time of recurrent states without a table, as in latency/roofline/costs.py."""
        ways = self.deployment.parallelism
        parts = [(part.shard(ways.tensor_parallel), layers) for part, layers in self.deployment.model.mixers
                 if part.backend == "state"]
        lacking = [(part, layers) for part, layers in parts if not is_measured(self.database, part)]
        if not lacking:
            return 0.0, 0.0
        tabled = [part.title for part, _ in lacking if part.price_key in WHOLE]
        if tabled:
            self.missing["linear_attention"] = f"the recurrence of {', '.join(dict.fromkeys(tabled))} was not measured"
        for part, _ in lacking:
            if part.price_key not in WHOLE:
                self.note_untabled(part)
        self.origins["linear_attention"] = "roofline"
        num_bytes = sum(layers * part.state_bytes(self.deployment.activation_bytes) for part, layers in lacking)
        flops = sum(layers * part.state_flops_per_token for part, layers in lacking)
        copies = ways.token_ranks
        return 2 * num_bytes / self.rate.memory_bytes / copies, flops / self.rate.attention_flops / copies

    def note_untabled(self, part) -> None:
        """Say by name that a kind of mixer is in no table."""
        note = (f'{part.title}, kind = "{part.kind}", is in no table: its FLOPs and bytes are priced as the roofline '
                "does, and no measurement of its kernels is behind that")
        if note not in self.database.notes:
            self.database.notes.append(note)

    # ---- pieces

    def _small(self, name: str, elements_per_token: float, count: int, kernels: int = 1) -> None:
        """Add an operator of `kernels` equal kernels that only move memory."""
        times = self.database.small(name, elements_per_token / kernels, self.tokens)
        if times is not None:
            self._add(name, times, count * (1 if name in MEASURED_TOGETHER else kernels))
            return
        ns = self.database.small_ns(elements_per_token * self.deployment.activation_bytes, self.tokens, kernels)
        self._tokens_ns[name] = self._tokens_ns.get(name, 0.0) + self._nothing_for_nothing(ns) * count
        self.origins[name] = "formula"
        self.database.hear_formula(name)

    def _add(self, name: str, times: Times, count: int) -> None:
        self._tokens_ns[name] = self._tokens_ns.get(name, 0.0) + self._nothing_for_nothing(times.ns) * count
        self._tokens_origins = np.maximum(self._tokens_origins, times.origins)
        self._describe(name, times)

    def _nothing_for_nothing(self, ns: np.ndarray) -> np.ndarray:
        ns = np.array(ns)
        ns[0] = 0.0
        return ns

    def _describe(self, name: str, times: Times) -> None:
        self.note_origin(name, describe_origins(times.origins))
        self.database.hear(name, times)

    def note_origin(self, name: str, origin: str) -> None:
        """Record the origin of an operator; of unlike layers the worst."""
        self.origins[name] = max(origin, self.origins.get(name, ORIGINS[0]), key=ORIGINS.index)

    def _collective(self, group: str, kind: str, ranks: int, elements_per_token: float,
                    tokens: np.ndarray | None = None) -> Times:
        """Return the times of a collective of `elements_per_token` elements per token.

        A message between stages uses the slowest link between any two stages.
        """
        tokens = self.tokens if tokens is None else tokens
        num_bytes = tokens * elements_per_token * self.deployment.activation_bytes
        if self.collective is not None:
            return self._asked(lambda size: self.collective.predict(group, kind, size) * 1e9, num_bytes)
        times = self.database.collective(kind, ranks, num_bytes, self.parameters.cuda_graph)
        if times is not None:
            return self._over_pcie(times, num_bytes, ranks) if kind == "all_reduce" else times
        if kind != "send_recv":         # no table has send_recv
            self.missing[f"{group} {kind}"] = f"no {kind} of {ranks} ranks"
        shares = {"all_reduce": 2 * (1 - 1 / ranks), "send_recv": 1.0}      # share of the bytes that each rank sends
        span = self.deployment.parallelism.num_accelerators if group == "pipeline" else ranks
        bandwidth = link_bytes_per_s(self.deployment, span) * 1e-9 * self.rate.link_efficiency
        ns = num_bytes * shares.get(kind, 1 - 1 / ranks) / bandwidth + self.rate.collective_ns
        return Times(ns, np.full(len(tokens), ROOFLINE, dtype=np.uint8))

    def _over_pcie(self, times: Times, num_bytes: np.ndarray, ranks: int) -> Times:
        """Return all-reduces, of cards without a link but PCIe at the rate of theirs, with a note. See links.py."""
        card, node = self.deployment.accelerator, self.deployment.node
        is_within = node is None or ranks <= node.num_accelerators
        if card.scaleup_bytes_per_s or not card.pcie_bytes_per_s or not is_within or num_bytes[-1] < LEAST_BYTES:
            return times
        link = link_bytes_per_s(self.deployment, ranks) * 1e-9 * self.rate.link_efficiency
        times, measured = over_link(times, num_bytes, ranks, link)
        note = (f"all-reduces over PCIe: {min(link, measured):.0f} GB/s; servers whose cards meet in host memory were "
                f"seen at 15 GB/s with PCIe 5; pcie_bytes_per_s of the card, or its node, sets another rate")
        if note not in self.database.notes:
            self.database.notes.append(note)
        return times

    def _asked(self, ask: Callable[[float], float], num_bytes: np.ndarray) -> Times:
        """Call a collective model at some sizes and interpolate, since it may simulate a network."""
        last = len(num_bytes) - 1
        octaves = np.arange(0, np.log2(last) + 1e-9, 1 / POINTS_PER_OCTAVE)
        nodes = np.unique(np.append(np.round(2 ** octaves).astype(int), last))
        ns = np.interp(np.arange(last + 1), nodes, [ask(float(num_bytes[node])) for node in nodes])
        return Times(ns, np.zeros(last + 1, dtype=np.uint8))

    def _roofline(self, rows: np.ndarray, ns: np.ndarray, kernels: int = 1) -> Times:
        return Times(ns + kernels * self.rate.kernel_ns, np.full(len(rows), ROOFLINE, dtype=np.uint8))


def describe_origins(origins: np.ndarray) -> str:
    """Return the best origin of the entries of a site as text."""
    return ORIGINS[int(origins[1:].min())]
