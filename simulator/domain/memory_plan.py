"""How an accelerator's memory is spent, and how many KV blocks that leaves: what vLLM finds out by a profile run."""
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from simulator.domain.deployment import Deployment
from simulator.domain.drafter_memory import DrafterMemory
from simulator.domain.dtypes import dtype_bytes
from simulator.domain.kv_groups import GroupPlan, plan_groups
from simulator.domain.kv_layout import kv_layout
from simulator.domain.layer_groups import GroupRules
from simulator.domain.rank_weights import dense_parts, layer_kinds, moe_of, rank_weights

GB = 1e9
GIB = 2 ** 30
NO_DRAFTER = DrafterMemory(weights_bytes=0.0, kv_bytes_per_token=0.0)


class MemoryReserve(msgspec.Struct, frozen=True, kw_only=True):
    """What is neither weights nor KV cache. Sources: start-up logs of vLLM, as named."""

    # The driver keeps this much from every process: an H100 of 79.65 GiB shows vLLM 79.22 GiB (its pull request 10511).
    driver_bytes: float = 0.43 * GIB
    # Memory that PyTorch does not see, mostly NCCL buffers: 0.16 GiB on one H100 (vLLM pull request 12126); with tensor
    # parallelism 0.6 GiB an accelerator (inference-sim, "non-torch" term of its automatic block count).
    non_torch_bytes: float = 0.16 * GIB
    non_torch_parallel_bytes: float = 0.6 * GIB
    # Bytes per row and vocabulary entry while sampling: logits in 16 bit and five float32 copies (converted, sorted,
    # probabilities, ...). gpt-oss-20b, 256 sequences, vLLM 0.19: 1.23 GiB seen with non-torch memory, this gives 1.21.
    sampler_bytes_per_logit: float = 22.0


DEFAULT_RESERVE = MemoryReserve()


class EngineLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's arguments that decide over memory, under vLLM's names."""

    block_size: int
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    grouping: GroupRules | None = None          # None: all layers share one block table
    drafter: DrafterMemory | None = None        # None: nobody drafts, or it holds nothing


class DoesNotFit(ValueError):
    """Model or longest request do not fit; the message holds the arithmetic."""


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Where the memory of one accelerator goes; of the fullest pipeline stage."""

    total_bytes: float              # what the driver leaves of the accelerator's memory
    budget_bytes: float             # total x gpu_memory_utilization
    weights_bytes: float
    drafter_bytes: float            # weights of what drafts, on the last stage
    activation_bytes: float         # peak of a forward pass of max_num_batched_tokens, or of sampling for max_num_seqs
    non_torch_bytes: float
    state_bytes: float              # recurrent state of max_num_seqs sequences, linear-attention layers
    kv_cache_bytes: float           # budget less all of the above

    kv_bytes_per_token: float       # in all layers of the stage, as long as no window has passed over it; of a shared
                                    # context the mean of the ranks
    drafter_kv_bytes_per_token: float           # of these, the drafter's
    block_bytes: float              # block_size tokens; with groups, what any of them needs for a block
    request_bytes: float            # KV cache of one request of max_model_len
    num_gpu_blocks: int             # of the replica, or of each of its data-parallel ranks; the null block included

    num_accelerators: int           # of the replica
    memory_bytes: int               # of one accelerator, nominal
    gpu_memory_utilization: float
    block_size: int                 # tokens of a block of the replica
    max_model_len: int
    groups: GroupPlan | None = None
    context_ways: int = 1           # accelerators that share the tokens of a sequence

    @property
    def max_concurrency(self) -> float:
        """Requests of max_model_len that fit at once."""
        return self.kv_cache_bytes / self.request_bytes if self.request_bytes else float("inf")

    def explain(self) -> str:
        """Return the arithmetic, one term a line."""
        rows = [
            (f"memory, {self.memory_bytes / GB:.1f} GB less the driver's share", self.total_bytes),
            (f"x gpu_memory_utilization {self.gpu_memory_utilization:g}", self.budget_bytes),
            ("- weights", self.weights_bytes),
            ("- weights of the drafter", self.drafter_bytes),
            ("- activations", self.activation_bytes),
            ("- outside PyTorch", self.non_torch_bytes),
            ("- recurrent state", self.state_bytes),
            ("= KV cache", self.kv_cache_bytes),
        ]
        lines = [f"{what:<44}{size / GB:>9.2f} GB" for what, size in rows if size or what[0] != "-"]
        blocks = f"of {self.block_size} tokens" if self.groups is None else f"of {self.block_bytes:.0f} bytes"
        lines.append(f"{self.num_gpu_blocks} blocks {blocks}, {self.kv_bytes_per_token:.0f} bytes a token, "
                     f"{self.max_concurrency:.2f} requests of {self.max_model_len} tokens")
        if self.drafter_kv_bytes_per_token:
            lines.append(f"{self.drafter_kv_bytes_per_token:.0f} of the bytes of a token are the drafter's")
        if self.context_ways > 1:
            lines.append(f"{self.context_ways} accelerators share the tokens of a sequence, and those of a block")
        return "\n".join(lines + (self.groups.explain() if self.groups else []))


def plan(deployment: Deployment, block_size: int, max_model_len: int, max_num_batched_tokens: int, max_num_seqs: int,
         reserve: MemoryReserve = DEFAULT_RESERVE, grouping: GroupRules | None = None) -> MemoryPlan:
    """Plan the memory of one replica.

    Parameters
    ----------
    deployment : Deployment
    block_size : int
        Tokens of a KV block on one accelerator; ranks that share the context hold as many each.
    max_model_len, max_num_batched_tokens, max_num_seqs : int
        The engine's limits, under vLLM's names.
    reserve : MemoryReserve, optional
        What neither weights nor KV cache takes.
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
    return plan_within(deployment, limits, reserve)


def plan_within(deployment: Deployment, limits: EngineLimits, reserve: MemoryReserve = DEFAULT_RESERVE) -> MemoryPlan:
    """Plan the memory of one replica as `plan` does, with all that the engine says."""
    result = _plan(deployment, limits, reserve)
    if result.num_gpu_blocks < 1:
        raise DoesNotFit(_no_block(deployment, result) + _advice(deployment, limits, reserve))
    if result.request_bytes > result.kv_cache_bytes:
        longest = _longest_request(deployment, limits, reserve)
        shorter = [f"max_model_len <= {longest}"] if longest else []
        raise DoesNotFit(_no_request(deployment, result) + _advice(deployment, limits, reserve, shorter))
    return result


def _plan(deployment: Deployment, limits: EngineLimits, reserve: MemoryReserve) -> MemoryPlan:
    """Return the plan of the fullest stage, whether it fits or not."""
    ways = deployment.parallelism
    stages = [_stage(deployment, ways.layers_of_stage(deployment.model, stage), limits, reserve)
              for stage in range(ways.pipeline_parallel)]
    return min(stages, key=lambda stage: stage.num_gpu_blocks)


def _stage(deployment: Deployment, layers: range, limits: EngineLimits, reserve: MemoryReserve) -> MemoryPlan:
    ways, shared = deployment.parallelism, deployment.parallelism.decode_context_parallel
    total = deployment.accelerator.memory_bytes - reserve.driver_bytes
    budget = total * deployment.gpu_memory_utilization
    weights = rank_weights(deployment, layers).num_bytes
    activations = activation_bytes(deployment, layers, limits, reserve)
    non_torch = reserve.non_torch_bytes if ways.num_accelerators == 1 else reserve.non_torch_parallel_bytes
    layout, drafter = kv_layout(deployment, layers), NO_DRAFTER
    if limits.drafter is not None and layers.stop == deployment.model.num_layers:
        drafter = limits.drafter
    groups = limits.grouping and plan_groups(deployment, limits.block_size, limits.max_model_len, limits.grouping)
    if groups is None:
        state = layout.state_bytes_per_sequence * limits.max_num_seqs
        block = (layout.bytes_per_token + drafter.kv_bytes_per_token) * limits.block_size
        request = -(-limits.max_model_len // (limits.block_size * shared)) * block
    else:                                       # states are blocks, too
        state, block = 0.0, groups.block_bytes(layers)
        request = groups.blocks_of_request(limits.max_model_len, limits.max_num_batched_tokens) * block
    kv_cache = budget - weights - drafter.weights_bytes - activations - non_torch - state
    return MemoryPlan(
        total_bytes=total, budget_bytes=budget, weights_bytes=weights,
        drafter_bytes=drafter.weights_bytes, activation_bytes=activations,
        non_torch_bytes=non_torch, state_bytes=state, kv_cache_bytes=kv_cache,
        kv_bytes_per_token=(layout.bytes_per_token + drafter.kv_bytes_per_token) / shared,
        drafter_kv_bytes_per_token=drafter.kv_bytes_per_token / shared, block_bytes=block,
        request_bytes=request, groups=groups,
        num_gpu_blocks=_num_blocks(kv_cache, block),
        num_accelerators=ways.num_accelerators, memory_bytes=deployment.accelerator.memory_bytes,
        gpu_memory_utilization=deployment.gpu_memory_utilization, block_size=limits.block_size * shared,
        max_model_len=limits.max_model_len, context_ways=shared)


def _num_blocks(kv_cache_bytes: float, block_bytes: float) -> int:
    """Return whole blocks; a stage without KV cache (linear attention alone) never runs out."""
    if kv_cache_bytes < 0:
        return 0
    return int(kv_cache_bytes // block_bytes) if block_bytes else 2 ** 31 - 1


def activation_bytes(deployment: Deployment, layers: range, limits: EngineLimits, reserve: MemoryReserve) -> float:
    """Return the peak of activations: of the forward pass or of sampling.

    Forward: tokens x (residual + hidden state + the widest layer part) elements. Sampling: the hidden states of all
    tokens stay while the logits of `max_num_seqs` rows are worked on, where the stage has the head. This is what vLLM's
    profile run provokes (GPUModelRunner.profile_run); it counts tensors and leaves out the allocator's slack.
    """
    model, element = deployment.model, deployment.activation_bytes
    widest = max(_widest_part(deployment, *kind) for kind in layer_kinds(model, layers))
    forward = limits.max_num_batched_tokens * (2 * model.hidden_size + widest) * element
    if layers.stop < model.num_layers:
        return forward
    hidden = limits.max_num_batched_tokens * model.hidden_size * element
    sampling = limits.max_num_seqs * model.vocab_size * reserve.sampler_bytes_per_logit
    return max(forward, hidden + sampling)


def _widest_part(deployment: Deployment, mixer: str, network: str) -> float:
    """Return the elements per token alive at once inside the widest part of a layer of this kind.

    MLP: gate and up outputs and their product. Token mixer: input projections and output. Routed experts, as
    vLLM's fused_moe allocates them: one buffer of max(gate and up, hidden) and one of the product per chosen expert.
    """
    model, ways = deployment.model, deployment.parallelism
    width = model.hidden_size
    parts = [_alive(part.shard(ways.tensor_parallel), width) for part in dense_parts(model, mixer, network)]
    moe = moe_of(model, network)
    if moe:
        local = moe.intermediate_size
        if ways.expert_parallel == 1:
            local /= ways.expert_ranks
        buffers = max((moe.expert.num_matrices - 1) * local, width) + local
        parts.append(moe.experts_per_token * ways.token_ranks * buffers / ways.expert_parallel + width)
    return max(parts)


def _alive(part, width: int) -> float:
    is_network = hasattr(part, "intermediate_size")
    return part.num_matrices * part.intermediate_size if is_network else part.matrix_parameters(width) / width


# ---- messages

def _no_block(deployment: Deployment, result: MemoryPlan) -> str:
    count = result.num_accelerators
    reserved = result.activation_bytes + result.non_torch_bytes + result.state_bytes
    drafter = f"those of the drafter {result.drafter_bytes * count / GB:.1f} GB, " * (result.drafter_bytes > 0)
    return (f"{deployment.model.name}: weights need {result.weights_bytes * count / GB:.1f} GB, {drafter}"
            f"{_budget(result)} leave {result.budget_bytes * count / GB:.1f} GB, "
            f"activations and other reserves take {reserved * count / GB:.1f} GB: "
            f"no room for one KV block of {result.block_bytes * count / 1e6:.1f} MB per {result.block_size} tokens")


def _no_request(deployment: Deployment, result: MemoryPlan) -> str:
    count = result.num_accelerators
    return (f"{deployment.model.name}: one request of max_model_len = {result.max_model_len} tokens needs "
            f"{result.request_bytes * count / GB:.1f} GB of KV cache, {_budget(result)} leave "
            f"{result.kv_cache_bytes * count / GB:.1f} GB beside "
            f"{(result.weights_bytes + result.drafter_bytes) * count / GB:.1f} GB of weights")


def _budget(result: MemoryPlan) -> str:
    return f"{result.num_accelerators} x {result.memory_bytes / GB:.1f} GB at {result.gpu_memory_utilization:g}"


def _longest_request(deployment: Deployment, limits: EngineLimits, reserve: MemoryReserve) -> int:
    """Return the longest max_model_len that fits, in whole blocks, by bisection."""
    block_size = limits.block_size * deployment.parallelism.decode_context_parallel
    low, high = 0, limits.max_model_len // block_size
    while low < high:
        middle = (low + high + 1) // 2
        shorter = replace(limits, max_model_len=middle * block_size)
        low, high = (middle, high) if _fits(deployment, shorter, reserve) else (low, middle - 1)
    return low * block_size


def _advice(deployment: Deployment, limits: EngineLimits, reserve: MemoryReserve, options: Sequence[str] = ()) -> str:
    """Return "; use ..." with `options` and the smallest other changes that would fit, "" where there are none."""
    options = list(options)
    for degree in (2 ** i for i in range(1, 8)):
        wider = replace(deployment, parallelism=replace(deployment.parallelism, tensor_parallel=degree))
        is_wider = degree > deployment.parallelism.tensor_parallel and not wider.parallelism.faults(wider.model)
        if is_wider and _fits(wider, limits, reserve):
            options.append(f"tensor_parallel >= {degree}")
            break
    for dtype in ("fp8", "int4"):
        smaller = replace(deployment, weight_dtype=dtype)
        if dtype_bytes(dtype) < deployment.matrix_bytes and _fits(smaller, limits, reserve):
            options.append(f"dtype = {dtype}")
            break
    return f"; use {' or '.join(options)}" if options else ""


def _fits(deployment: Deployment, limits: EngineLimits, reserve: MemoryReserve) -> bool:
    result = _plan(deployment, limits, reserve)
    return result.num_gpu_blocks >= 1 and result.request_bytes <= result.kv_cache_bytes
