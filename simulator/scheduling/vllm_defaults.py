"""Options that vLLM's server sets by its version, card, model and ranks where a file leaves them out.

Sources: vLLM 0.33.0, 0.32.0 and 0.10.1, vllm/engine/arg_utils.py, vllm/config; the rules by card and their sources are
in simulator/domain/server_defaults/vllm.py.
"""
import msgspec

from simulator.domain.server_defaults.cards import NO_CAPABILITY
from simulator.domain.server_defaults.said import Default, Machine
from simulator.domain.server_defaults.vllm import (
    BATCHED_EXPERTS,
    Asked,
    Limits,
    batch_limits,
    drops_graphs,
    is_glm_5,
    limits_of,
)
from simulator.domain.server_defaults.vllm_attention import (
    DEFAULT_BLOCK,
    FORCED_LATENT_BLOCKS,
    Shape,
    backend_of,
    block_of,
)
from simulator.domain.vllm_versions import VllmBehaviour, behaviour_of
from simulator.scheduling.vllm_arguments import VllmParameters

NO_CARD_LIMITS = Limits(8192, 256, "8,192 tokens and 256 sequences")     # ours: vLLM has none without a card
NOWHERE = Machine(None, None, None, None)


def defaults(engine, machine: Machine) -> dict[str, Default]:
    """Return the defaults of keys of [engine].

    engine : `simulator.config.experiment.Engine`, with VllmParameters.
    """
    parameters = engine.parameters
    behaviour, said = behaviour_of(parameters.vllm_version), f"vLLM {parameters.vllm_version}"
    backend, is_async = engine.experts and engine.experts.all2all_backend, _is_async(parameters, behaviour)
    kv_dtype = _kv_dtype(machine, said)
    machine = machine.with_kv(kv_dtype)
    why = ": off with drafts that are looked up" if behaviour.is_async_by_default and not is_async else ""
    why = ": off for pooling" if parameters.task == "pooling" and behaviour.is_async_by_default else why
    is_sized = parameters.kv_cache_memory_bytes is not None     # no share of memory beside it
    return {**({} if kv_dtype is None else {"kv_cache_dtype": kv_dtype}),
            "block_size": _block(machine, behaviour, said),
            **({} if is_sized else {"gpu_memory_utilization": Default(behaviour.gpu_memory_utilization, said)}),
            **_batch(parameters, machine, behaviour, backend in BATCHED_EXPERTS),
            "scheduler_reserve_full_isl": Default(behaviour.reserves_full_text, said),
            "async_scheduling": Default(is_async, f"{said}{why}"), **_graphs(parameters, backend, machine, said)}


def _graphs(parameters, exchange: str | None, machine: Machine, said: str) -> dict[str, Default]:
    ranks, model, given = machine.topology, machine.model, parameters.cuda_graphs
    if given is not None and (given.capture_sizes or given.memory_gib):
        return {}           # refused, see config/engines.py
    drops = drops_graphs(exchange, ranks.data_parallel if ranks is not None else 1,
                         model is not None and model.moe is not None)
    return {"cuda_graphs.mode": Default("none", f"{said}: {exchange} with data parallelism")} if drops else {}


def _kv_dtype(machine: Machine, said: str) -> Default | None:
    """Return the format of kv_cache_dtype = "auto"; None: the checkpoint's or model's.

    Source: vLLM 0.33.0 and 0.32.0, vllm/model_executor/models/config.py (GlmMoeDsaForCausalLM); 0.10 has no GLM-5.
    """
    model, card = machine.model, machine.card
    if machine.kv_cache_dtype != "auto" or model is None or card is None or card.major != 10 or not is_glm_5(model):
        return None
    declared = model.quantization.kv_cache_dtype if model.quantization is not None else None
    return None if declared else Default("fp8_e4m3", f"{machine.on_card(said)}: GLM-5 on compute capability 10.x")


def completed(parameters: VllmParameters) -> VllmParameters:
    """Return arguments with the largest batch of a server without a card.

    Arguments of an experiment are complete already; others schedule synchronously, unless they say so.
    """
    limits = _batch(parameters, NOWHERE, behaviour_of(parameters.vllm_version), False)
    missing = {key: default.value for key, default in limits.items() if getattr(parameters, key) is None}
    return msgspec.structs.replace(parameters, **missing) if missing else parameters


def _batch(parameters, machine: Machine, behaviour: VllmBehaviour, has_batched: bool) -> dict[str, Default]:
    card, ranks = machine.card, machine.topology
    limits = NO_CARD_LIMITS if card is None else limits_of(card, behaviour)
    exchanges = ranks is not None and ranks.expert_parallel > 1 and ranks.data_parallel > 1
    tokens, seqs, changes, is_cut = batch_limits(limits, Asked(
        tokens=parameters.max_num_batched_tokens, seqs=parameters.max_num_seqs, max_model_len=machine.max_model_len,
        chunked=parameters.enable_chunked_prefill, batched=has_batched and exchanges), behaviour)
    rule = "; ".join([f"{machine.on_card(f'vLLM {parameters.vllm_version}')}: {limits.rule}", *changes])
    return {"max_num_batched_tokens": Default(tokens, rule),
            "max_num_seqs": Default(seqs, f"{rule}; no more than tokens" if is_cut else rule)}


def _block(machine: Machine, behaviour: VllmBehaviour, said: str) -> Default:
    """Return the block that the attention backend takes.

    Blocks of hybrids are aligned where their layers are grouped, `domain/kv_groups.py`.
    """
    card, model = machine.card, machine.model
    if model is not None and (asked := _asked_block(model)):
        return Default(asked, f"{said}: kernels of {model.name}'s attention")
    if card is None or model is None or card.capability == NO_CAPABILITY:
        return Default(DEFAULT_BLOCK, said)
    attention, where = model.attention, machine.on_card(said)
    is_latent = attention.backend == "mla"
    if behaviour.forces_latent_blocks:
        block = FORCED_LATENT_BLOCKS.get(card.major, DEFAULT_BLOCK) if is_latent else DEFAULT_BLOCK
        return Default(block, f"{where}: latent attention" if block != DEFAULT_BLOCK else said)
    declared = model.quantization.kv_cache_dtype if model.quantization is not None else None
    backend = backend_of(card, Shape(
        dtype="bfloat16" if model.dtype == "float32" else model.dtype,
        kv_dtype=(declared or "auto") if machine.kv_cache_dtype == "auto" else machine.kv_cache_dtype,
        head=sum(attention.cached_widths) if is_latent else attention.head_dim, is_latent=is_latent,
        is_sparse=attention.indexer is not None, has_sinks=attention.sinks,
        shares_context=machine.topology is not None and machine.topology.decode_context_parallel > 1), behaviour)
    if backend is None:
        return Default(DEFAULT_BLOCK, f"{where}: the attention backend is not known")
    return Default(block_of(backend), f"{where}: {backend}")


def _asked_block(model) -> int | None:
    """Return the block that kernels of a model's attention ask for; None: they leave it open."""
    return max((part.block_size or 0 for part, _, _ in model.attentions), default=0) or None


def _is_async(parameters: VllmParameters, behaviour: VllmBehaviour) -> bool:
    """Return the default of async_scheduling.

    vLLM 0.32 schedules asynchronously by default, with pipeline stages or without, but not with drafts of the n-gram
    proposer, which reserve no slots ahead; 0.33 does with these drafts as well, but not with suffix decoding, which
    only its older model runner has. In 0.10 the option is off by default,
    and for pooling in all versions.
    Source: vLLM 0.33.0 and 0.32.0, vllm/config/vllm.py, VllmConfig.__post_init__ with its newer model runner, the
    default; 0.10.1, vllm/config/scheduler.py.
    """
    given = parameters.speculative
    has_n_grams = given is not None and given.num_lookahead_tokens == 0
    return behaviour.is_async_by_default and parameters.task == "generate" and (
        not has_n_grams or (behaviour.takes_async_n_grams and given.method != "suffix"))
