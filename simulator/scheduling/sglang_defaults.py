"""Options that SGLang's server sets by card, model and ranks where a file leaves them out.

The rules by card and their sources are in simulator/domain/server_defaults/sglang.py.
"""
import msgspec
from msgspec.structs import replace

from simulator.domain.kv_layout import kv_layout
from simulator.domain.kv_share import KvShare, StatePool
from simulator.domain.memory_plan import EngineLimits, MemoryPlan, plan_within
from simulator.domain.memory_reserve import RESERVES
from simulator.domain.server_defaults.cards import NO_CAPABILITY, Card
from simulator.domain.server_defaults.said import Default, Machine
from simulator.domain.server_defaults.sglang import (
    CONSERVATIVENESS_OF_RANKS,
    IMAGES_IN_GRAPHS,
    PAGES,
    TEXT_BY_DEFAULT,
    Server,
    Shapes,
    backend_of,
    image_factor,
    limits_of,
    prefill_sizes,
    reserved_mib,
    running_requests,
    static_share,
)
from simulator.domain.server_defaults.vllm import is_gpt_oss
from simulator.scheduling.sglang_arguments import SglangParameters
from simulator.scheduling.sglang_drafts import DRAFTED_RUNNING, SHAPE, SglangDrafts, completed_drafts

SGLANG = "SGLang 0.5.23"
CHUNK, RUNNING = 8192, 256      # ours: without a card
SGLANG_RESERVE = RESERVES["0.19"]       # without effect on KV: activations have the rest of the memory
NOWHERE = Machine(None, None, None, None)
DEEPSEEK_V3 = (61, 7168)        # layers and width of DeepSeek-V3, R1 and Kimi-K2, which share an architecture


def defaults(engine, machine: Machine) -> dict[str, Default]:
    """Return the defaults of keys of [engine].

    engine : `simulator.config.experiment.Engine`, with SglangParameters.
    """
    kv_dtype = _kv_dtype(machine)
    machine = machine.with_kv(kv_dtype)
    parameters, page = engine.parameters, _page(machine)
    found = {} if kv_dtype is None else {"kv_cache_dtype": kv_dtype}
    found |= {"block_size": page, "chunked_prefill_size": _chunk(machine),
              "schedule_conservativeness": _conservativeness(machine)}
    if machine.card is not None and machine.model is not None and parameters.mem_fraction_static is None:
        found["mem_fraction_static"] = _static(engine, machine)
    frac = parameters.mem_fraction_static
    if frac is None and "mem_fraction_static" in found:
        frac = found["mem_fraction_static"].value
    found |= _drafts(parameters.speculative, machine)
    if parameters.speculative is not None:
        return found | {"max_running_requests": Default(DRAFTED_RUNNING, f"{SGLANG}: with drafts")}
    return found | {"max_running_requests": _running(engine, machine, engine.block_size or page.value, frac)}


def _drafts(given: SglangDrafts | None, machine: Machine) -> dict[str, Default]:
    """Return the numbers of drafts that a server chooses; none if they contradict the acceptance."""
    if given is None or given.is_complete:
        return {}
    architecture = machine.model.architecture if machine.model is not None else ""
    try:
        chosen = completed_drafts(given, architecture)
    except ValueError:
        return {}
    why = f"{SGLANG}: for {architecture}" if architecture else f"{SGLANG}: its default"
    return {f"speculative.{key}": Default(getattr(chosen, key), why) for key in SHAPE}


def _kv_dtype(machine: Machine) -> Default | None:
    """Return the format of kv_cache_dtype = "auto" with sparse attention, or None.

    Source: sglang 0.5.23, sglang/srt/arg_groups/overrides.py (_dsa_kv_cache_dtype_default).
    """
    model, card = machine.model, machine.card
    if machine.kv_cache_dtype != "auto" or model is None or card is None or card.capability == NO_CAPABILITY or not (
            shapes_of(model).is_sparse):
        return None
    return Default("fp8_e4m3" if card.major >= 10 else "bfloat16", f"{machine.on_card(SGLANG)}: sparse attention")


def _static(engine, machine: Machine) -> Default:
    parameters = engine.parameters
    chunk = parameters.chunked_prefill_size
    deepep = engine.experts is not None and (engine.experts.all2all_backend or "").startswith("deepep")
    server = _server(parameters, machine, _whole_chunk(machine) if chunk is None else chunk * _attention_ranks(machine),
                     deepep)
    reserved = reserved_mib(machine.card, server)
    why = f"all but {reserved:.0f} MiB of {machine.card.memory_mib}, for activations and graphs"
    factor = _image_factor(machine)
    if factor != 1.0:
        why += f", x {factor:.3g} for images"
    return Default(max(static_share(machine.card, reserved) * factor, 0.001), f"{machine.on_card(SGLANG)}: {why}")


def _takes_images(model) -> bool:
    """Return whether a server takes images unless flags say otherwise."""
    return model.vision_parameters > 0 and model.architecture not in TEXT_BY_DEFAULT


def _image_factor(machine: Machine) -> float:
    """Return the factor of static memory for images; 1: the server takes none, or its tower has no known shape."""
    tower = machine.model.vision
    if tower is None or machine.role == "decode" or not _takes_images(machine.model):
        return 1.0
    return image_factor(tower.num_layers, tower.width)


def completed(parameters: SglangParameters) -> SglangParameters:
    """Return arguments with the defaults of a server without a card.

    Arguments of an experiment are complete already.
    """
    running = RUNNING if parameters.speculative is None else DRAFTED_RUNNING
    usual = {"chunked_prefill_size": CHUNK, "max_running_requests": running, "schedule_conservativeness": 1.0}
    missing = {key: value for key, value in usual.items() if getattr(parameters, key) is None}
    return msgspec.structs.replace(parameters, **missing) if missing else parameters


def _attention_ranks(machine: Machine) -> int:
    """Return the data-parallel ranks of attention that share experts, --enable-dp-attention; else 1."""
    shares = machine.topology is not None and machine.model is not None and machine.model.moe is not None
    return machine.topology.data_parallel if shares else 1


def _tensor_ranks(machine: Machine) -> int:
    """Return SGLang's tp_size, which counts data-parallel ranks of attention."""
    return 1 if machine.topology is None else machine.topology.tensor_parallel * _attention_ranks(machine)


def _whole_chunk(machine: Machine) -> int:
    return CHUNK if machine.card is None else limits_of(machine.card, _tensor_ranks(machine))[0]


def _chunk(machine: Machine) -> Default:
    ranks, whole = _attention_ranks(machine), _whole_chunk(machine)
    size = f": {machine.card.memory_mib / 1024:.0f} GiB" if machine.card is not None else f": {CHUNK:,} tokens"
    shared = f"; of all {ranks} attention ranks together" if ranks > 1 else ""
    return Default(whole // ranks, f"{machine.on_card(SGLANG)}{size}{shared}")


def _conservativeness(machine: Machine) -> Default:
    if _attention_ranks(machine) == 1:
        return Default(1.0, SGLANG)
    return Default(CONSERVATIVENESS_OF_RANKS, f"{SGLANG}: x 0.3 with attention in data parallel ranks")


def _page(machine: Machine) -> Default:
    if machine.card is None or machine.model is None:
        return Default(1, SGLANG)
    backend = backend_of(machine.card, shapes_of(machine.model))
    if backend not in PAGES:
        return Default(1, f"{machine.on_card(SGLANG)}: {backend} takes pages of any size")
    return Default(PAGES[backend][0], f"{machine.on_card(SGLANG)}: {backend} takes pages of {PAGES[backend][0]}")


def shapes_of(model) -> Shapes:
    """Return the facts of a model that its attention backend depends on."""
    is_latent = model.attention.backend == "mla"
    return Shapes(
        is_sparse=model.attention.indexer is not None, is_latent=is_latent, is_gpt_oss=is_gpt_oss(model),
        is_deepseek_v3=is_latent and (model.num_layers, model.hidden_size) == DEEPSEEK_V3)


def sglang_share(frac: float) -> KvShare:
    """Return SGLang's rule for the memory of weights, states and KV."""
    return KvShare("mem_fraction_static", "SGLang", frac, "static")


def state_pool(deployment, overlaps: bool) -> StatePool | None:
    """Return SGLang's rule for recurrent states; None: the model has none.

    Its states are float32 unless the checkpoint says otherwise, and those of the convolution as activations are;
    source: sglang 0.5.23, sglang/srt/configs/mamba_utils.py.
    """
    model = None if deployment is None else deployment.model
    if model is None or model.linear_attention is None:
        return None
    parts = {name: replace(part, mixer=part.mixer.with_state_dtype("float32")) if part.is_recurrent else part
             for name, part in model.parts.items()}
    kept = replace(model, linear_attention=model.linear_attention.with_state_dtype("float32"), parts=parts)
    return StatePool(kv_layout(replace(deployment, model=kept)).state_bytes_per_sequence, overlaps)


def _running(engine, machine: Machine, page: int, frac: float | None) -> Default:
    """Return max_running_requests: by the tokens of the pool, and by slots for recurrent states."""
    if machine.card is None:
        return Default(RUNNING, f"{machine.on_card(SGLANG)}: {RUNNING} requests")
    plan = _plan(engine, machine, page, frac)
    blocks = engine.num_gpu_blocks or (plan and plan.num_gpu_blocks)
    by = "the tokens of its pool" if blocks else "the least of 2048 to 4096, by the tokens of its pool"
    found = running_requests(blocks and blocks * page, machine.max_model_len)
    if plan is None or plan.most_stateful is None or plan.most_stateful >= found:
        return Default(found, f"{SGLANG}: {by}")
    return Default(max(plan.most_stateful, 1), f"{SGLANG}: its slots for recurrent states")


def _plan(engine, machine: Machine, page: int, frac: float | None) -> MemoryPlan | None:
    """Return the use of memory, on which running requests depend; None: not known, or the model does not fit."""
    if machine.deployment is None or frac is None or machine.max_model_len is None:
        return None
    states = state_pool(machine.deployment, not engine.parameters.disable_overlap_schedule)
    limits = EngineLimits(
        block_size=page, max_model_len=machine.max_model_len, max_num_batched_tokens=1, max_num_seqs=0,
        share=sglang_share(frac),
        states=states and replace(states, page_size=page, keeps_prefixes=engine.enable_prefix_caching))
    try:
        return plan_within(machine.deployment, limits, None, SGLANG_RESERVE)
    except ValueError:
        return None


def _server(parameters: SglangParameters, machine: Machine, chunk: int, has_deepep: bool) -> Server:
    """Return the options that static memory depends on; chunk : of all attention ranks together."""
    ways, ranks = machine.topology, _tensor_ranks(machine)
    running, drafts = parameters.max_running_requests, parameters.speculative
    most = min(limits_of(machine.card, ranks)[1], running or 2**31)
    if parameters.gives_graphs:         # the server cuts its own choice alone
        most = max(parameters.cuda_graph_bs_decode or (parameters.cuda_graph_max_bs_decode,))
    has_prefill_graphs = machine.role != "decode" and ways.pipeline_parallel == 1 and (
        machine.model.architecture in IMAGES_IN_GRAPHS or not _takes_images(machine.model))
    return Server(
        chunk=chunk, max_prefill_tokens=parameters.max_prefill_tokens, ranks=ranks * ways.pipeline_parallel,
        decode_graph=most if machine.role != "prefill" else 0, graphs_of_ranks=most,
        prefill_graphs=len(prefill_sizes(chunk)) if has_prefill_graphs else 0, running=running,
        attention_ranks=_attention_ranks(machine), is_latent=machine.model.attention.backend == "mla",
        role=machine.role, has_deepep=has_deepep and ways.expert_parallel > 1,
        drafts=drafts.num_draft_tokens or 1 if drafts is not None else 1)


def static_frac(parameters: SglangParameters, deployment, card: Card) -> float:
    """Return mem_fraction_static of arguments that no experiment completed.

    deployment : the model on its accelerators, which `card` describes.
    """
    machine = Machine(card, deployment.model, None, deployment.parallelism)
    chunk = completed(parameters).chunked_prefill_size
    share = static_share(card, reserved_mib(card, _server(parameters, machine, chunk, has_deepep=False)))
    return max(share * _image_factor(machine), 0.001)
