"""Use of an accelerator's memory, and the KV blocks that remain: vLLM finds both by a profile run."""
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from simulator.domain.activations import activation_bytes, exchange_bytes
from simulator.domain.block_shapes import block_faults
from simulator.domain.deployment import Deployment
from simulator.domain.drafter_memory import DrafterMemory
from simulator.domain.dtypes import dtype_bytes
from simulator.domain.encoder_profile import NOTHING, ItemLimits, encoder_peak
from simulator.domain.kernel_padding import expert_padding, projection_padding
from simulator.domain.kv_groups import GroupPlan, plan_groups
from simulator.domain.kv_layout import kv_layout
from simulator.domain.kv_share import KvShare, StatePool, vllm_share
from simulator.domain.kv_size import KvSize
from simulator.domain.latent_copies import copied_bytes
from simulator.domain.layer_groups import GroupRules, LayerGroups
from simulator.domain.memory_reserve import (
    GRAPH_ERROR,
    GRAPH_MEAN_ERROR,
    MemoryReserve,
    outside_bytes,
    reserve_of,
    usable_bytes,
)
from simulator.domain.rank_weights import rank_weights

GB = 1e9
NO_DRAFTER = DrafterMemory(weights_bytes=0.0, kv_bytes_per_token=0.0)


class EngineLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's arguments that decide over memory, under vLLM's names."""

    block_size: int
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    grouping: GroupRules | None = None          # None: all layers share one block table
    drafter: DrafterMemory | None = None        # None: no drafter, or one that holds nothing
    share: KvShare | None = None                # None: vLLM's, of the deployment's gpu_memory_utilization
    has_old_kernels: bool = False               # those of vLLM 0.10
    copies_latent_up: bool = False              # 16-bit copies beside a quantised kv_b of latent attention
    adapter_bytes: float = 0.0                  # room for LoRA adapters, of all layers of a tensor-parallel rank
    batches_in_flight: int = 1                  # iterations at a time, of which windows hold all tokens
    spared_blocks: int = 0                      # that the start check counts beside a request's: the null block
    states: StatePool | None = None             # None: a recurrent state for each of max_num_seqs sequences
    items: ItemLimits | None = None             # of prompts, for the encoder's profile run; None: there is none

    def request_blocks(self, deployment: Deployment, groups: GroupPlan | LayerGroups | None, num_tokens: int) -> int:
        """Return the blocks of a request of so many tokens."""
        if groups is None:
            return -(-num_tokens // (self.block_size * deployment.parallelism.decode_context_parallel))
        return groups.blocks_of_request(num_tokens, self.batches_in_flight * self.max_num_batched_tokens)

    def longest_text(self, deployment: Deployment, groups: GroupPlan | LayerGroups | None, num_blocks: int) -> int:
        """Return the longest max_model_len up to this one for which blocks suffice.

        0: for none.
        """
        return bisect_right(range(1, self.max_model_len + 1), num_blocks - self.spared_blocks,
                            key=partial(self.request_blocks, deployment, groups))

    def too_few(self, deployment: Deployment, groups: GroupPlan | LayerGroups | None, num_blocks: int) -> str:
        """Return why so few given blocks are refused, with advice.

        Empty: they hold a request of max_model_len, and the spared blocks.
        """
        needed = self.request_blocks(deployment, groups, self.max_model_len) + self.spared_blocks
        if num_blocks >= needed:
            return ""
        longest = self.longest_text(deployment, groups, num_blocks)
        shorter = f" or max_model_len <= {longest}" if longest else ""
        null = ", the null block included" if self.spared_blocks else ""
        return (f"expected at least {needed}, found {num_blocks}: one request of max_model_len = {self.max_model_len} "
                f"tokens needs so many{null}; use num_gpu_blocks >= {needed}{shorter}")


class DoesNotFit(ValueError):
    """Model or longest request do not fit; the message holds the arithmetic."""


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Use of the memory of one accelerator, in the fullest pipeline stage."""

    total_bytes: float              # accelerator memory without the driver's part
    budget_bytes: float             # limit on all of the following together, by the engine's rule
    weights_bytes: float            # as kernels hold them, padding included
    padding_bytes: float            # part of weights_bytes that is not in the checkpoint
    copied_bytes: float             # part of weights_bytes: copies of quantised up-projections of latent attention
    kernel: str                     # kernel that pads; "": none does
    drafter_bytes: float            # weights of the drafter, on the last stage
    adapter_bytes: float            # room for LoRA adapters
    activation_bytes: float         # peak of a forward pass of max_num_batched_tokens, or of sampling for max_num_seqs
    encoder_bytes: float            # that encoding the largest items adds to that peak, by the tower's shape
    exchange_bytes: float           # buffers for the exchange of tokens between experts
    graph_bytes: float              # estimate of CUDA graphs
    graphs_are_guessed: bool        # no key gives that estimate: it follows logs of other servers
    non_torch_bytes: float
    state_bytes: float              # recurrent states of linear-attention layers
    most_stateful: int | None       # running requests that have room for their states; None: max_num_seqs
    kv_cache_bytes: float           # by the engine's rule: vLLM: budget less all of the above
    share: KvShare                  # that rule

    kv_bytes_per_token: float       # in all layers of the stage, as long as no window has passed over it; of a shared
                                    # context the mean of the ranks
    drafter_kv_bytes_per_token: float           # the drafter's part of kv_bytes_per_token
    block_bytes: float              # block_size tokens; with groups, bytes of a block of any group
    request_blocks: int             # blocks of one request of max_model_len
    spared_blocks: int              # beside them, that the start check counts
    num_gpu_blocks: int             # of the replica, or of each of its data-parallel ranks; the null block included

    num_accelerators: int           # of the replica
    memory_bytes: int               # of one accelerator, as the driver reports it
    block_size: int                 # tokens of a block of the replica
    max_model_len: int
    groups: GroupPlan | None = None
    context_ways: int = 1           # accelerators that share the tokens of a sequence

    @property
    def kv_size(self) -> KvSize:
        """The size of the KV cache in the numbers that engines print."""
        return KvSize(
            self.num_gpu_blocks, self.block_size, len(self.groups.layers.groups) if self.groups else 1,
            self.request_blocks if self.block_bytes else 0, self.max_model_len, self.kv_cache_bytes)

    @property
    def request_bytes(self) -> float:
        """Bytes of the KV cache of one request of max_model_len."""
        return self.request_blocks * self.block_bytes

    @property
    def holds_request(self) -> bool:
        """Whether a request of max_model_len fits, by the engine's start check.

        SGLang has none: its pool bounds requests (managers/tp_worker.py, get_worker_info).
        """
        return self.share.of == "static" or self.holds_longest

    @property
    def holds_longest(self) -> bool:
        """Whether the blocks hold a request of max_model_len."""
        return self.num_gpu_blocks >= self.request_blocks + self.spared_blocks

    @property
    def excess_bytes(self) -> float:
        """Bytes by which a KV cache of a given size and all else exceed the memory."""
        if self.share.of != "given":
            return 0.0
        return self.kv_cache_bytes + self.loaded_bytes + self.workspace_bytes - self.total_bytes

    @property
    def loaded_bytes(self) -> float:
        """All weights on one accelerator: of the model, the drafter and adapters."""
        return self.weights_bytes + self.drafter_bytes + self.adapter_bytes

    @property
    def workspace_bytes(self) -> float:
        """All that is neither weights nor KV, of one accelerator."""
        return (self.activation_bytes + self.encoder_bytes + self.exchange_bytes + self.graph_bytes
                + self.non_torch_bytes + self.state_bytes)

    def explain(self) -> str:
        """Return the arithmetic, one term a line."""
        share = self.share
        first = [(f"memory, {self.memory_bytes / GB:.1f} GB less the driver's share", self.total_bytes)]
        scaled = [(f"x {share.key} {share.share:g}", self.budget_bytes)]
        spent = [
            ("- weights", self.weights_bytes),
            ("- weights of the drafter", self.drafter_bytes),
            ("- weights of adapters", self.adapter_bytes),
            ("- activations", self.activation_bytes),
            ("- more of the encoder, by its shape alone", self.encoder_bytes),
            ("- exchange of tokens between experts", self.exchange_bytes),
            ("- CUDA graphs" + f", by a law {GRAPH_MEAN_ERROR:g} to {GRAPH_ERROR:g} x off" * self.graphs_are_guessed,
             self.graph_bytes),
            ("- outside PyTorch", self.non_torch_bytes),
            ("- recurrent state", self.state_bytes),
        ]
        if share.of == "static":                # the rest of the memory is for activations
            spent = [row for row in spent if "weights" in row[0] or "state" in row[0]]
        free = [("= free", sum(size for _, size in first) - sum(size for _, size in spent))]
        if share.of in ("total", "static"):
            rows = [*first, *scaled, *spent, ("= KV cache", self.kv_cache_bytes)]
        else:
            size = f"x {share.key} {share.share:g}" if share.of == "free" else f"of it {share.key}"
            rows = [*first, *spent, *free, (f"{size} = KV cache", self.kv_cache_bytes)]
        lines = [f"{what:<44}{size / GB:>9.2f} GB" for what, size in rows if size or what[0] != "-"]
        return "\n".join(lines + self._blocks())

    def _blocks(self) -> list[str]:
        """Return lines on the number, size and capacity of KV blocks."""
        blocks = f"of {self.block_size} tokens" if self.groups is None else f"of {self.block_bytes:.0f} bytes"
        lines = [f"{self.num_gpu_blocks} blocks {blocks}, {self.kv_bytes_per_token:.0f} bytes a token, "
                 f"{self.kv_size.concurrency:.2f} requests of {self.max_model_len} tokens"]
        if not self.holds_longest:
            lines.append(f"the pool bounds requests, by {self.num_gpu_blocks * self.block_size} tokens")
        if self.drafter_kv_bytes_per_token:
            lines.append(f"{self.drafter_kv_bytes_per_token:.0f} of the bytes of a token are the drafter's")
        if self.padding_bytes:
            lines.append(f"{self.padding_bytes / GB:.2f} GB of the weights are padding: {self.kernel}'s kernels round "
                         "the sides of experts")
        if self.copied_bytes:
            lines.append(f"{self.copied_bytes / GB:.2f} GB of the weights are copies in 16 bit of latent attention's "
                         "kv_b")
        if self.context_ways > 1:
            lines.append(f"{self.context_ways} accelerators share the tokens of a sequence, and those of a block")
        return lines + (self.groups.explain() if self.groups else [])


def plan(deployment: Deployment, block_size: int, max_model_len: int, max_num_batched_tokens: int, max_num_seqs: int,
         reserve: MemoryReserve | None = None, grouping: GroupRules | None = None) -> MemoryPlan:
    """Plan the memory of one replica.

    Parameters
    ----------
    deployment : Deployment
    block_size : int
        Tokens of a KV block on one accelerator; ranks that share the context hold as many each.
    max_model_len, max_num_batched_tokens, max_num_seqs : int
        The engine's limits, under vLLM's names.
    reserve : MemoryReserve, optional
        Memory outside weights and KV cache; default: that of the newest vLLM.
    grouping : GroupRules, optional
        How layers of unlike kinds have block tables of their own; None: all share one.

    Returns
    -------
    MemoryPlan

    Raises
    ------
    DoesNotFit
        No KV block fits beside the weights, or one request of max_model_len is larger than the whole KV cache.
    """
    limits = EngineLimits(block_size=block_size, max_model_len=max_model_len,
                          max_num_batched_tokens=max_num_batched_tokens, max_num_seqs=max_num_seqs, grouping=grouping)
    return plan_within(deployment, limits, groups_of(deployment, limits), reserve)


def groups_of(deployment: Deployment, limits: EngineLimits) -> GroupPlan | None:
    """Return the groups of layers; None: all layers share one block table."""
    return limits.grouping and plan_groups(
        deployment, limits.block_size, limits.max_model_len, limits.grouping, limits.drafter)


def plan_within(deployment: Deployment, limits: EngineLimits, groups: GroupPlan | None,
                reserve: MemoryReserve | None = None) -> MemoryPlan:
    """Plan the memory of one replica by the settings of its engine.

    groups : from `groups_of`.
    """
    reserve = reserve or reserve_of()
    result = _plan(deployment, limits, groups, reserve)
    if result.excess_bytes > 0:
        raise DoesNotFit(_too_large(deployment, result) + _advice(deployment, limits, reserve, _smaller(result)))
    if result.num_gpu_blocks < 1:
        raise DoesNotFit(_no_block(deployment, result) + _advice(deployment, limits, reserve))
    if not result.holds_request:
        longest = limits.longest_text(deployment, groups, result.num_gpu_blocks)
        shorter = [f"max_model_len <= {longest}"] if longest else []
        raise DoesNotFit(_no_request(deployment, result) + _advice(deployment, limits, reserve, shorter))
    if result.most_stateful is not None and result.most_stateful < limits.max_num_seqs:
        raise DoesNotFit(f"{deployment.model.name}: slots for recurrent states have room for {result.most_stateful} "
                         f"running requests, to which {result.share.engine} lowers {limits.max_num_seqs}: use "
                         f"max_running_requests <= {result.most_stateful}")
    return result


def blocks_that_fit(deployment: Deployment, limits: EngineLimits, groups: GroupPlan | None,
                    reserve: MemoryReserve | None = None) -> int:
    """Return the KV blocks that the plan has room for; 0: for none.

    Arguments as for `plan_within`.
    """
    return max(_plan(deployment, limits, groups, reserve or reserve_of()).num_gpu_blocks, 0)


def _plan(deployment: Deployment, limits: EngineLimits, groups: GroupPlan | None, reserve: MemoryReserve) -> MemoryPlan:
    """Return the plan of the fullest stage, whether it fits or not."""
    ways = deployment.parallelism
    stages = [_stage(deployment, ways.layers_of_stage(deployment.model, stage), limits, groups, reserve)
              for stage in range(ways.pipeline_parallel)]
    return min(stages, key=lambda stage: stage.num_gpu_blocks)


def _stage(deployment: Deployment, layers: range, limits: EngineLimits, groups: GroupPlan | None,
           reserve: MemoryReserve) -> MemoryPlan:
    ways, shared = deployment.parallelism, deployment.parallelism.decode_context_parallel
    weights, padding, copied, kernel = _weights(deployment, layers, limits)
    layout, drafter, stateful = kv_layout(deployment, layers), NO_DRAFTER, None
    if limits.drafter is not None and layers.stop == deployment.model.num_layers:
        drafter = limits.drafter
    total, share = usable_bytes(deployment, reserve), limits.share or vllm_share(deployment.gpu_memory_utilization)
    adapters = limits.adapter_bytes * len(layers) / deployment.model.num_layers
    loaded = weights + drafter.weights_bytes + adapters
    if groups is None and limits.states is not None:
        free = share.kv_bytes(total, loaded, 0.0)
        state, stateful = limits.states.num_bytes(free), limits.states.slots(free) // limits.states.per_request
    else:                                       # where layers are grouped states are blocks, too
        state = layout.state_bytes_per_sequence * limits.max_num_seqs * (groups is None)
    if groups is None:
        block = (layout.bytes_per_token + drafter.kv_bytes_per_token) * limits.block_size
    else:
        block = groups.block_bytes(layers)
    passing = _passing(deployment, layers, limits, reserve)
    kv_cache = share.kv_bytes(total, loaded + state, sum(passing.values()))
    return MemoryPlan(
        total_bytes=total, budget_bytes=total * share.share if share.of in ("total", "static") else total,
        weights_bytes=weights, padding_bytes=padding, copied_bytes=copied, kernel=kernel,
        graphs_are_guessed=reserve.given_graph_bytes is None,
        drafter_bytes=drafter.weights_bytes, adapter_bytes=adapters, state_bytes=state, most_stateful=stateful,
        kv_cache_bytes=kv_cache, share=share,
        kv_bytes_per_token=(layout.bytes_per_token + drafter.kv_bytes_per_token) / shared,
        drafter_kv_bytes_per_token=drafter.kv_bytes_per_token / shared, block_bytes=block,
        request_blocks=limits.request_blocks(deployment, groups, limits.max_model_len),
        spared_blocks=limits.spared_blocks, groups=groups,
        num_gpu_blocks=_num_blocks(kv_cache, block),
        num_accelerators=ways.num_accelerators, memory_bytes=deployment.accelerator.memory_bytes,
        block_size=limits.block_size * shared,
        max_model_len=limits.max_model_len, context_ways=shared, **passing)


def _passing(deployment: Deployment, layers: range, limits: EngineLimits, reserve: MemoryReserve) -> dict[str, float]:
    """Return the bytes of a stage that are neither weights nor states, by their names in MemoryPlan."""
    batch = limits.max_num_batched_tokens, limits.max_num_seqs
    peak, kept = activation_bytes(deployment, layers, *batch, reserve)
    encoder = NOTHING
    if limits.items is not None and layers.start == 0:
        encoder = encoder_peak(deployment, limits.items, batch, limits.max_model_len)
    return {
        "activation_bytes": peak + kept, "encoder_bytes": encoder.beyond(peak),
        "exchange_bytes": exchange_bytes(deployment), "graph_bytes": reserve.graph_bytes(len(layers)),
        "non_torch_bytes": outside_bytes(deployment, reserve)}


def _weights(deployment: Deployment, layers: range, limits: EngineLimits) -> tuple[float, float, float, str]:
    """Return (bytes of weights as held, of padding and of copies among them, the kernel that pads)."""
    counts = rank_weights(deployment, layers)
    ratio, kernel = expert_padding(deployment, limits.has_old_kernels)
    padding = counts.expert_num_bytes * (ratio - 1)
    copied = copied_bytes(deployment, layers) if limits.copies_latent_up else 0.0
    rows = projection_padding(deployment, layers) if limits.copies_latent_up else 0.0
    return counts.num_bytes + padding + copied + rows, padding, copied, kernel


def _num_blocks(kv_cache_bytes: float, block_bytes: float) -> int:
    """Return whole blocks; a stage without KV cache (linear attention alone) never runs out."""
    if kv_cache_bytes < 0:
        return 0
    return int(kv_cache_bytes // block_bytes) if block_bytes else 2 ** 31 - 1


# ---- messages

def _no_block(deployment: Deployment, result: MemoryPlan) -> str:
    count = result.num_accelerators
    states = result.state_bytes if result.share.of != "static" else 0.0
    reserved = result.workspace_bytes - states if result.share.of != "static" else result.state_bytes
    drafter = f"those of the drafter {result.drafter_bytes * count / GB:.1f} GB, " * (result.drafter_bytes > 0)
    drafter += f"those of adapters {result.adapter_bytes * count / GB:.1f} GB, " * (result.adapter_bytes > 0)
    return (f"{deployment.model.name}: weights need {result.weights_bytes * count / GB:.1f} GB, {drafter}"
            f"{_budget(result)} leave {result.budget_bytes * count / GB:.1f} GB, "
            + f"recurrent states of all sequences take {states * count / GB:.1f} GB, " * (states > 0)
            + f"activations and other reserves take {reserved * count / GB:.1f} GB: "
            f"no room for one KV block of {result.block_bytes * count / 1e6:.1f} MB per {result.block_size} tokens")


def _too_large(deployment: Deployment, result: MemoryPlan) -> str:
    return (f"{deployment.model.name}: {result.share.key} = {result.share.text} bytes leave no room for "
            f"{result.loaded_bytes / GB:.1f} GB of weights and {result.workspace_bytes / GB:.1f} GB of activations and "
            f"other reserves on {result.memory_bytes / GB:.1f} GB")


def _smaller(result: MemoryPlan) -> list[str]:
    """Return the size that would fit, as an option; empty: none would."""
    size = result.kv_cache_bytes - result.excess_bytes
    return [f"{result.share.key} <= {size:.0f}"] if size >= result.block_bytes else []


def _no_request(deployment: Deployment, result: MemoryPlan) -> str:
    count = result.num_accelerators
    return (f"{deployment.model.name}: one request of max_model_len = {result.max_model_len} tokens needs "
            f"{result.request_bytes * count / GB:.1f} GB of KV cache, {_budget(result)} leave "
            f"{result.kv_cache_bytes * count / GB:.1f} GB beside "
            f"{result.loaded_bytes * count / GB:.1f} GB of weights")


def _budget(result: MemoryPlan) -> str:
    of = "" if result.share.of == "total" else f"{result.share.key} "
    return f"{result.num_accelerators} x {result.memory_bytes / GB:.1f} GB at {of}{result.share.text}"


def _advice(deployment: Deployment, limits: EngineLimits, reserve: MemoryReserve, options: Sequence[str] = ()) -> str:
    """Return "; use ..." with `options` and the smallest other changes that would fit, "" where there are none."""
    options = list(options)
    for degree in (2 ** i for i in range(1, 8)):
        wider = replace(deployment, parallelism=replace(deployment.parallelism, tensor_parallel=degree))
        is_wider = degree > deployment.parallelism.tensor_parallel and not (
            wider.parallelism.faults(wider.model) or block_faults(wider))
        if is_wider and _fits(wider, limits, reserve):
            options.append(f"tensor_parallel >= {degree}")
            break
    for dtype in ("fp8", "int4"):
        smaller = replace(deployment, weight_dtype=dtype)
        if dtype_bytes(dtype) < deployment.matrix_bytes and _fits(smaller, limits, reserve):
            options.append(f"dtype = {dtype}")
            break
    halves = (limits.max_num_seqs >> shift for shift in range(1, limits.max_num_seqs.bit_length()))
    fewer = next((each for each in halves if _fits(deployment, replace(limits, max_num_seqs=each), reserve)), None)
    if fewer is not None:
        options.append(f"at most {fewer} sequences at a time")
    return f"; use {' or '.join(options)}" if options else ""


def _fits(deployment: Deployment, limits: EngineLimits, reserve: MemoryReserve) -> bool:
    result = _plan(deployment, limits, groups_of(deployment, limits), reserve)
    return result.num_gpu_blocks >= 1 and result.holds_request and result.excess_bytes <= 0
