"""Facts of engines for the memory plan: rule for KV, reserves, and the largest batch of the profile run."""
from simulator.domain.deployment import Deployment
from simulator.domain.kv_share import KvShare
from simulator.domain.kv_size import old_vllm_lines, sglang_lines, tensorrt_llm_lines, vllm_lines
from simulator.domain.memory_reserve import RESERVES, reserve_of
from simulator.domain.server_defaults.cards import as_card
from simulator.domain.vllm_versions import behaviour_of
from simulator.latency.overheads.capture import num_graphs
from simulator.scheduling.adapter_prices import slots_bytes
from simulator.scheduling.contract import MemoryNeeds
from simulator.scheduling.sglang_defaults import SGLANG_RESERVE, sglang_share, state_pool, static_frac

# No start-up log of TensorRT-LLM is known here: vLLM's figures, without its estimate of CUDA graphs, are used for it.
TENSORRT_LLM = RESERVES["0.19"]


def vllm_needs(parameters, deployment: Deployment) -> MemoryNeeds:
    """Return the memory needs of vLLM, in the configured version.

    Batches in flight: vLLM 0.32.0, vllm/config/vllm.py (max_concurrent_batches, max_in_flight_tokens).
    """
    graphs, version = parameters.cuda_graphs, parameters.vllm_version
    behaviour = behaviour_of(version)
    reserve = reserve_of(version, num_graphs(parameters, deployment), graphs and graphs.memory_gib)
    size, share = parameters.kv_cache_memory_bytes, None
    if size is not None:        # nothing is subtracted for graphs then (vllm/v1/worker/gpu_worker.py)
        share, reserve = KvShare("kv_cache_memory_bytes", "vLLM", float(size), "given"), reserve_of(version)
    return MemoryNeeds(parameters.max_num_batched_tokens, parameters.max_num_seqs, share, reserve,
                       has_old_kernels=behaviour.has_old_kernels, copies_latent_up=True,
                       adapter_bytes=slots_bytes(parameters.lora, deployment),
                       batches_in_flight=deployment.parallelism.pipeline_parallel + bool(parameters.async_scheduling),
                       spared_blocks=int(behaviour.spares_null_block), items=parameters.items,
                       why_not_few=f"vLLM {behaviour.release} refuses to start" * behaviour.checks_given_blocks,
                       lines=vllm_lines if behaviour.counts_whole_requests else old_vllm_lines)


def tensorrt_llm_needs(parameters) -> MemoryNeeds:
    """Return the memory needs of TensorRT-LLM."""
    share = KvShare("free_gpu_memory_fraction", "TensorRT-LLM", parameters.free_gpu_memory_fraction, "free")
    return MemoryNeeds(parameters.max_num_tokens, parameters.max_batch_size, share, TENSORRT_LLM,
                       why_not_few="TensorRT-LLM lowers max_seq_len to what they hold", lines=tensorrt_llm_lines)


def sglang_needs(parameters, deployment: Deployment) -> MemoryNeeds:
    """Return the memory needs of SGLang."""
    chunk = parameters.chunked_prefill_size
    tokens = min(parameters.max_prefill_tokens, chunk) if chunk > 0 else parameters.max_prefill_tokens
    frac = parameters.mem_fraction_static or static_frac(parameters, deployment, as_card(deployment.accelerator))
    return MemoryNeeds(tokens, parameters.max_running_requests, sglang_share(frac), SGLANG_RESERVE,
                       adapter_bytes=slots_bytes(parameters.lora, deployment),
                       lines=sglang_lines(parameters.max_running_requests),
                       states=state_pool(deployment, not parameters.disable_overlap_schedule))
