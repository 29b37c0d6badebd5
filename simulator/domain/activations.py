"""Activation memory of an accelerator during a batch, as vLLM's profile run measures it."""
from simulator.domain.deployment import Deployment
from simulator.domain.kernel_padding import MARLIN, expert_padding, rounded
from simulator.domain.layer_list import Layer
from simulator.domain.memory_reserve import MemoryReserve, domain_size
from simulator.domain.rank_weights import dense_parts, layer_kinds

# Tokens that experts compute at once (VLLM_FUSED_MOE_CHUNK_SIZE of vllm/envs.py): larger batches go through in chunks.
EXPERT_CHUNK = 16_384
# DeepEP's buffer over NVLink, and over the network where ranks lie in several domains (VLLM_DEEPEP_BUFFER_SIZE_MB of
# vllm/envs.py, vllm/distributed/device_communicators/all2all.py).
DEEPEP_BUFFER_BYTES = 2**30
# Tokens that a rank dispatches at once with low-latency kernels (VLLM_MOE_DP_CHUNK_SIZE).
LOW_LATENCY_TOKENS = 256


def activation_bytes(deployment: Deployment, layers: range, max_num_batched_tokens: int, max_num_seqs: int,
                     reserve: MemoryReserve) -> tuple[float, float]:
    """Return the peak of activations, and the bytes that stay.

    The peak is that of the forward pass or of sampling; workspaces of experts and the sampler's counts stay. Forward:
    tokens x (residual + hidden state + the widest layer part) elements. Sampling: the hidden states of all tokens stay
    while the logits of `max_num_seqs` rows are processed, if the stage has the head. A pipeline stage holds its input
    and, unless it is the last, its output. vLLM's profile run provokes this peak (GPUModelRunner.profile_run); it
    counts tensors and leaves out the allocator's slack.
    """
    model, element, tokens = deployment.model, deployment.activation_bytes, max_num_batched_tokens
    rows, is_last = min(max_num_seqs, tokens), layers.stop == model.num_layers
    widest = max(_widest_part(deployment, reserve, kind) for kind in layer_kinds(model, layers))
    peak = tokens * (2 * model.hidden_size + widest) * element
    kept = _workspace_bytes(deployment, layers, tokens, reserve)
    if deployment.parallelism.pipeline_parallel > 1:
        kept += (2 if is_last else 4) * tokens * model.hidden_size * element
    if is_last:
        hidden = reserve.hidden_copies * tokens * model.hidden_size * element
        logit_bytes = reserve.sampler_bytes_per_logit
        if deployment.parallelism.tensor_parallel > 1:
            logit_bytes += reserve.gather_bytes_per_logit
        logits = model.vocab_size if model.has_head else 0
        peak = max(peak, hidden + rows * logits * logit_bytes)
        kept += max_num_seqs * logits * reserve.sampler_state_bytes_per_logit
    return peak, kept


def _widest_part(deployment: Deployment, reserve: MemoryReserve, layer: Layer) -> float:
    """Return the elements per token alive at once inside the widest part of such a layer.

    MLP: gate and up outputs and their product. Token mixer: input projections and output. Routed experts: their inputs,
    gathered from all ranks that send them tokens, and their outputs; plus, where they do not stay, the buffers of
    vLLM's fused_moe: one of max(gate and up, hidden) and one of the product per chosen expert.
    """
    model, ways = deployment.model, deployment.parallelism
    width = model.hidden_size
    parts = [part.shard(ways.tensor_parallel).inner_elements(width) for part in dense_parts(layer)]
    if moe := layer.moe:
        seen = 1 if _backend(deployment) else ways.token_ranks
        parts.append((2 * seen if seen > 1 else 1) * width)
        if not reserve.keeps_workspaces:
            local = moe.intermediate_size / ways.expert_cuts
            buffers = max((moe.expert.num_matrices - 1) * local, width) + local
            parts[-1] += moe.experts_per_token * ways.token_ranks * buffers / ways.expert_parallel
    return max(parts, default=0.0)


def _workspace_bytes(deployment: Deployment, layers: range, tokens: int, reserve: MemoryReserve) -> float:
    """Return the bytes of the two buffers that all layers' experts take turns in; 0: their kernel has none.

    Rows x max(product, hidden) and rows x max(gate and up, hidden), as vLLM's TritonExperts
    and MarlinExperts.workspace_shapes (vllm/model_executor/layers/fused_moe/experts), Marlin's with the sides that it
    rounds; rows: tokens x chosen experts, whether these are on the rank or not. With low-latency kernels of DeepEP each
    expert of the rank has room for the tokens of all ranks.
    """
    model, ways = deployment.model, deployment.parallelism
    moe = model.moe if any(kind.moe for kind in layer_kinds(model, layers)) else None
    is_marlin = moe is not None and expert_padding(deployment)[1] == MARLIN.kernel
    if moe is None or not reserve.keeps_workspaces or (deployment.expert_dtype == "fp4" and not is_marlin):
        return 0.0
    backend = _backend(deployment)
    if backend == "deepep_low_latency":
        rows = deployment.num_expert_slots * LOW_LATENCY_TOKENS
    else:
        seen = tokens if backend else min(tokens * ways.token_ranks, max(EXPERT_CHUNK, tokens))
        rows = seen * moe.experts_per_token
    local, width = moe.intermediate_size / ways.expert_cuts, model.hidden_size
    if is_marlin:
        local, width = rounded(local, MARLIN.intermediate), rounded(width, MARLIN.hidden)
    buffers = max(local, width) + max((moe.expert.num_matrices - 1) * local, width)
    return rows * buffers * deployment.activation_bytes


def _backend(deployment: Deployment) -> str:
    """Return the DeepEP kernels by which data-parallel ranks exchange tokens; "": tokens are gathered."""
    backend = deployment.experts.all2all_backend if deployment.experts else None
    is_deepep = deployment.parallelism.data_parallel > 1 and (backend or "").startswith("deepep")
    return backend if is_deepep else ""


def exchange_bytes(deployment: Deployment) -> float:
    """Return the size of the buffers that carry tokens to their experts and back.

    Gathered tokens are among the activations. Low latency: four buffers, sent and received, in two halves that
    alternate, each with every expert's room for the tokens of a rank in bfloat16 with float32 scales of 128 elements
    each; deepseek-ai/DeepEP, csrc/config.hpp (LowLatencyLayout): 31.94 GiB for 448 experts, 1,840 tokens and 5,120
    elements (vLLM issue 57894), of which this gives 31.94.
    """
    backend, ways = _backend(deployment), deployment.parallelism
    if not backend:
        return 0.0
    if backend == "deepep_high_throughput":
        return DEEPEP_BUFFER_BYTES * (2 if ways.expert_ranks > domain_size(deployment) else 1)
    message = deployment.model.hidden_size * (2 + 4 / 128)
    return DEEPEP_BUFFER_BYTES + 4 * deployment.num_expert_slots * LOW_LATENCY_TOKENS * message
