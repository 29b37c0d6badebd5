"""The drafter of [engine.speculative]: its deployment, memory, and latency model."""
from collections.abc import Callable

from msgspec.structs import replace

from simulator.config.experiment import Model
from simulator.config.models import model_of
from simulator.domain.deployment import Deployment
from simulator.domain.drafter_memory import (
    DrafterMemory,
    of_draft_model,
    of_head,
    of_medusa_heads,
    of_mtp_modules,
    why_not_loaded,
)
from simulator.domain.model_spec import ModelSpec
from simulator.domain.parallelism import Parallelism
from simulator.errors import InputErrors, KeyFault
from simulator.scheduling.drafters import IN_ONE_PASS, LOOK_UPS, num_modules

KEY = "engine.speculative"


def draft_deployment(site) -> Deployment | None:
    """Return the draft model on the accelerators of the engine; None: none is named.

    site : assembly.site.Site of a pool, also in the functions below.

    Raises
    ------
    InputErrors
        The draft model does not match the target, cannot be laid out as configured, or cannot be priced.
    """
    given, target = site.scheduler_facts.speculative, site.deployment
    if given is None or not given.names_model:
        return None
    if target is None:
        raise InputErrors([KeyFault(f"{KEY}.model: needs [model] and [hardware]")])
    ways, spec = target.parallelism, model_of(Model(name=given.model, config=given.config))
    size = given.draft_tensor_parallel_size or ways.tensor_parallel
    faults = _model_faults(spec, target.model, site.max_model_len)
    if size not in (1, ways.tensor_parallel):
        faults.append(f"draft_tensor_parallel_size: expected 1 or topology.tensor_parallel = {ways.tensor_parallel}, "
                      f"found {size}; vLLM refuses it too")
    spread = Parallelism(tensor_parallel=size)
    faults += [f"model: {fault}" for fault in spread.faults(spec)]
    if faults:
        raise InputErrors([KeyFault(f"{KEY}.{fault}") for fault in faults])
    return replace(target, model=spec, parallelism=spread, weight_dtype=None, experts=None,
                   kv_cache_dtype=target.declared_kv_cache_dtype)


def _model_faults(spec: ModelSpec, target: ModelSpec, max_model_len: int) -> list[str]:
    """Return the reasons why a model cannot draft for another one.

    Source: vllm-project/vllm, vllm/config/speculative.py (verify_equal_vocab_size_if_draft_model).
    """
    faults = []
    if spec.vocab_size != target.vocab_size:
        faults.append(f"model: expected the vocabulary of {target.name}, {target.vocab_size} tokens, found {spec.name} "
                      f"with {spec.vocab_size}; vLLM refuses it too")
    if spec.max_position_embeddings < max_model_len:
        faults.append(f"model: {spec.name} was made for {spec.max_position_embeddings} tokens, engine.max_model_len is "
                      f"{max_model_len}: drafts that end there are not supported")
    if set(spec.layer_types) != {"full_attention"}:
        faults.append(f"model: expected layers of full attention alone, found others in {spec.name}: their KV beside "
                      "the model's is not supported")
    return faults


def drafter_memory(site) -> DrafterMemory | None:
    """Return the memory of a drafter on an accelerator; None: it holds nothing.

    Raises
    ------
    InputErrors
        The drafter's memory, or its place, is unknown, so that a memory plan cannot be made.
    """
    given, target, draft = site.scheduler_facts.speculative, site.deployment, site.draft
    if given is None or given.method in (None, *LOOK_UPS):
        return None
    if given.method == "draft_model" and draft is None:
        raise InputErrors([KeyFault(f"{KEY}.model: missing; expected the draft model, whose weights and KV the memory "
                                    "plan counts, or engine.num_gpu_blocks")])
    if why := why_no_modules(given, target.model):
        raise InputErrors([KeyFault(f"{KEY}.method: {why}")])
    if given.method in IN_ONE_PASS:
        raise InputErrors([KeyFault(f"engine.num_gpu_blocks: missing; expected a number, since nothing says what the "
                                    f"layers of a drafter by {given.method} hold ({KEY}.method)")])
    if why := why_not_beside(target):
        raise InputErrors([KeyFault(f"engine.num_gpu_blocks: missing; expected a number: {why}, and KV of a drafter "
                                    f'({KEY}.method = "{given.method}") beside it is not supported')])
    try:
        if draft is not None:
            return of_draft_model(draft)
        if given.method == "medusa":
            return of_medusa_heads(target, given.num_tokens)
        return of_mtp_modules(target) if given.method == "mtp" else of_head(target, given.method)
    except ValueError as error:
        raise InputErrors([KeyFault(f"{KEY}.method: {error}; expected another method, or engine.num_gpu_blocks")
                           ]) from None


def unpriced_notes(site) -> tuple[str, ...]:
    """Return notes on the acceptance of drafts that take no time.

    Notes on others come with their price.
    """
    given = site.scheduler_facts.speculative
    return tuple(given.notes) if given is not None and given.method is None else ()


def modules_in_turn(site) -> int:
    """Return the MTP modules that draft in turn; 1: one drafter, or none."""
    given = site.scheduler_facts.speculative
    return 1 if given is None or given.drafts_first else num_modules(site.model, given.method, given.num_tokens)


def why_no_modules(given, model: ModelSpec | None) -> str:
    """Return why a model cannot draft for itself, or "".

    Source: vLLM 0.33.0, vllm/config/speculative.py, where the method of a checkpoint without modules is unsupported.
    """
    if given is None or given.method != "mtp" or model is None:
        return ""
    if why := why_not_loaded(model.architecture):
        return f"expected another method: {model.name} declares num_mtp_layers = {model.num_mtp_layers}, but {why}"
    if model.num_mtp_layers > 0:
        return ""
    return (f"{model.name} has no MTP modules: its file has num_mtp_layers = 0; expected another method: vLLM does "
            "not start")


def why_not_beside(target: Deployment) -> str:
    """Return why a drafter's layers have no place in the model's groups, or ""."""
    model = target.model
    if set(model.layer_types) <= {"full_attention", "feed_forward"}:
        return ""
    if target.parallelism.decode_context_parallel > 1:
        return f"ranks share the context of {model.name}, which has layers of several kinds"
    return ""


def with_draft_model(site, model, make: Callable):
    """Return a latency model that includes the time of a draft model.

    make : returns the latency model of the draft model.

    Raises
    ------
    InputErrors
        The backend cannot price the draft model.
    """
    from simulator.latency.overheads.drafter import Drafter  # imported only when needed, as the next two
    from simulator.scheduling.drafter_prices import shaped
    from simulator.scheduling.vllm_overheads import skips_drafts

    parameters, given, drafter = site.pool.engine.parameters, site.scheduler_facts.speculative, None
    if given.drafter_share is None and site.backend.prices_any_model:
        try:
            drafter = make()
        except InputErrors as errors:
            raise InputErrors([KeyFault(f"{KEY}.model: {fault}") for fault in errors.faults]) from None
    found = Drafter(model, given.num_passes, given.drafter_share or 0.0, given.drafter_forward_us or 0.0,
                    given.drafter_per_sequence_us or 0.0, given.notes, drafter)
    found.skips = not given.drafts_first and skips_drafts(parameters)
    return shaped(found, given)
