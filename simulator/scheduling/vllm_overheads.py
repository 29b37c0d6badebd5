"""Additions of the scheduler `vllm` to the time of a batch."""
from functools import partial

from simulator.domain.server_defaults.vllm import goes_without_graphs
from simulator.domain.vllm_versions import behaviour_of
from simulator.latency.overheads.capture import CudaGraphParameters, card_and_model, sizes_of
from simulator.latency.overheads.drafter import Drafter
from simulator.latency.overheads.encoder import Encoder
from simulator.latency.overheads.graphs import Graphs
from simulator.latency.overheads.launches import HOSTS, Launching, launching
from simulator.latency.overheads.masks import Masks
from simulator.latency.overheads.pooling import Headless
from simulator.latency.roofline.towers import tower_times
from simulator.scheduling.adapter_prices import with_adapters
from simulator.scheduling.drafter_prices import price_of, published_notes, shaped
from simulator.scheduling.drafters import IN_ONE_PASS, OF_THE_MODEL, num_modules
from simulator.scheduling.grammar_draws import mask_times
from simulator.scheduling.vllm_arguments import drops_last_hit, hashes_ahead

MODULES_NOTE = (
    "speculative: {} MTP modules draft in turn, each over all tokens of a batch; vLLM ends no chunk of a prompt fewer "
    "tokens before its end than there are drafts: here chunks end anywhere")


def around(parameters, deployment) -> tuple:
    """Return functions from LatencyModel to LatencyModel, the innermost first.

    A draft model that is named has its own latency model, which is not known here; see `simulator.assembly.drafts`.

    parameters : VllmParameters. deployment : None where the experiment has no [model] or no [hardware].
    """
    found = [partial(_with_graphs, parameters, deployment)]
    if parameters.lora is not None:
        found.append(partial(with_adapters, parameters.lora, deployment))
    if parameters.encoder is not None:
        found += _encoders(parameters.encoder, deployment)
    if parameters.structured_outputs is not None:       # masks are filled beside all other additions
        found.append(partial(_with_masks, parameters))
    speculative = parameters.speculative
    if speculative is not None and speculative.method is not None and not speculative.names_model:
        found.append(partial(_with_drafter, parameters, deployment))
    if parameters.task == "pooling":
        found.append(Headless)
    return tuple(found)


def _encoders(given, deployment) -> list:
    """Return the price of encoders: of an embedding as given, or of each item by the tower of the model."""
    if given.embedding_us:
        return [partial(Encoder, us_per_embedding=given.embedding_us)]
    times = None if given.is_priced else tower_times(deployment)
    if times is None:
        return []
    return [partial(Encoder, least_us=times.least_ns * 1e-3, by_item=True)]


def _drafts(parameters) -> int:
    return parameters.speculative.num_tokens if parameters.speculative is not None else 0


def _with_graphs(parameters, deployment, model):
    """Return a model with CUDA graphs, if they are configured or their kernels were timed.

    Raises
    ------
    ValueError
        The model does not price padding.
    """
    given = parameters.cuda_graphs
    if given is None and not model.knows_kernels:
        return model
    if not model.takes_padding:
        raise ValueError(f"cuda_graphs: expected none, {type(model).__name__} cannot price padded batches: linear, "
                         "roofline and operators can")
    given = given or CudaGraphParameters()
    mode = "none" if goes_without_graphs(deployment) else given.mode or behaviour_of(parameters.vllm_version).graph_mode
    if (given.eager_us_per_layer or 0.0) + given.piecewise_us_per_layer > 0 and deployment is None:
        raise ValueError("cuda_graphs: eager_us_per_layer and piecewise_us_per_layer need the layers of [model]")
    layers = deployment.model.num_layers if deployment is not None else 0
    drafts = _drafts(parameters)
    sizes = [] if mode == "none" else sizes_of(parameters, 1 + drafts, *card_and_model(deployment))
    launch = _launching(given, deployment, model, mode == "full_decode_only"
                        or parameters.max_num_batched_tokens > max(sizes, default=0))
    if mode == "none" and launch.us == 0 and not launch.notes:
        return model
    return Graphs(model, mode, sizes, 1 + drafts, given.piecewise_us_per_layer * layers, launch)


def _launching(given, deployment, model, reaches_beyond) -> Launching:
    """Return the time of launching the kernels of an iteration without graph.

    reaches_beyond : batches may be larger than the largest graph, or decodes alone have graphs.
    """
    if given.eager_us_per_layer is not None:
        us = given.eager_us_per_layer * (deployment.model.num_layers if deployment is not None else 0)
        return Launching(us, us)
    if deployment is None or not (model.takes_collective and reaches_beyond):
        return Launching(0.0, 0.0)  # times of whole iterations are given, or all have graphs
    return launching(deployment, HOSTS["vllm"])


def _with_masks(parameters, model):
    """Return a model that waits for masks."""
    given = parameters.structured_outputs
    return Masks(model, mask_times(given), max(given.cpus, 1), _drafts(parameters))


def _with_drafter(parameters, deployment, model):
    """Return a model that adds the time of drafting for the next iteration.

    Raises
    ------
    ValueError
        The drafter's time follows from the model, and there is none.
    """
    given = parameters.speculative
    share, forward_us = price_of(given, deployment)
    modules = num_modules(deployment and deployment.model, given.method, given.num_tokens)
    notes = given.notes + published_notes(given, deployment) + _hit_notes(parameters, deployment)
    drafter = Drafter(model, given.num_tokens, share, forward_us, given.drafter_per_sequence_us or 0.0,
                      notes + [MODULES_NOTE.format(modules)] * (modules > 1))
    drafter.skips, drafter.is_whole = skips_drafts(parameters), modules > 1
    return shaped(drafter, given)


def skips_drafts(parameters) -> bool:
    """Return whether batches behind which no sequence can verify drafts have none.

    Source: vLLM 0.33.0, its newer model runner, for drafters with a forward pass; parallel drafting of other methods
    than DFlash is left to the older runner.
    """
    return behaviour_of(parameters.vllm_version).skips_drafts and parameters.speculative.method in (
        *OF_THE_MODEL, *IN_ONE_PASS, "draft_model") and not parameters.speculative.parallel_drafting


def _hit_notes(parameters, deployment) -> list[str]:
    """Return notes on prefix hits of models with layers of several kinds."""
    kinds = set(deployment.model.layer_types) - {"feed_forward"} if deployment is not None else set()
    if (not drops_last_hit(parameters) or len(kinds) < 2 or parameters.grouping.is_disabled
            or hashes_ahead(parameters, True, False) > 0):
        return []
    return [f"speculative: vLLM computes the last block of a prefix hit again for {parameters.speculative.method}; "
            "with layers of several kinds that is not built, and hits are up to a block too long"]
