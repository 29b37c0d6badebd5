"""Additions of the scheduler `sglang` to the time of a batch: CUDA graphs, launches, adapters, masks, drafts.

Source: sglang 0.5.23, sglang/srt/arg_groups/cuda_graph_hook.py, memory_hook.py, and
model_executor/runner/base_cuda_graph_runner.py (get_batch_sizes_to_capture); 0.5.9, sglang/srt/server_args.py, where
enable_piecewise_cuda_graph is off by default.
"""
from functools import partial

from simulator.domain.server_defaults.cards import as_card
from simulator.domain.server_defaults.sglang import decode_sizes, limits_of
from simulator.latency.overheads.drafter import Drafter
from simulator.latency.overheads.engine_graphs import EngineGraphs, with_graphs
from simulator.latency.overheads.masks import Masks
from simulator.scheduling.adapter_prices import with_adapters
from simulator.scheduling.drafter_prices import price_of, published_notes, shaped
from simulator.scheduling.grammar_draws import mask_times

UNPADDED = "cuda_graphs: prompts are not padded to the sizes of SGLang's prefill graphs"


def around(parameters, deployment) -> tuple:
    """Return functions from LatencyModel to LatencyModel.

    parameters : SglangParameters. deployment : None where the experiment has no [model] or no [hardware].
    """
    drafts = parameters.speculative
    has_decode = parameters.cuda_graph_backend_decode != "disabled"
    has_prefill = has_decode and parameters.cuda_graph_backend_prefill != "disabled"
    sizes = graph_sizes(parameters, deployment) if has_decode else ()
    found = [partial(with_graphs, EngineGraphs(
        sizes, has_prefill, parameters.eager_us_per_layer, "sglang", (UNPADDED,) if has_prefill else (),
        1 if drafts is None else drafts.num_draft_tokens, parameters.gives_graphs,
        max(sizes, default=0) < parameters.max_running_requests), deployment)]
    if parameters.lora is not None:
        found.append(partial(with_adapters, parameters.lora, deployment, in_each=True))
    if parameters.structured_outputs is not None:       # masks are filled beside all other additions
        found.append(partial(_with_masks, parameters.structured_outputs))
    if drafts is not None and not drafts.names_model:
        found.append(partial(_with_drafter, drafts, deployment))
    return tuple(found)


def _with_masks(given, model):
    """Return a model that waits for masks, which one thread fills one after the other."""
    return Masks(model, mask_times(given), 1, 0)


def _with_drafter(drafts, deployment, model):
    """Return a model that adds the time of drafts.

    Raises
    ------
    ValueError
        The drafter's time follows from the model, and there is none; or the model has recurrent states.
    """
    if deployment is not None and deployment.model.linear_attention is not None:
        raise ValueError(f"speculative: expected none, {deployment.model.name} has recurrent states, of which SGLang "
                         "keeps one for each draft; that is not built")
    share, forward_us = price_of(drafts, deployment)
    return shaped(Drafter(
        model, drafts.num_passes, share, forward_us, drafts.drafter_per_sequence_us or 0.0,
        drafts.notes + published_notes(drafts, deployment)), drafts)


def graph_sizes(parameters, deployment) -> tuple[int, ...]:
    """Return the sequences of decode graphs: as given, else by card.

    None is beyond the running requests.
    """
    sizes, most = parameters.cuda_graph_bs_decode, parameters.cuda_graph_max_bs_decode
    if sizes is None and most is None and (deployment is None or deployment.accelerator is None):
        return ()
    if sizes is None:
        most = most or limits_of(as_card(deployment.accelerator), deployment.parallelism.tensor_parallel)[1]
        sizes = decode_sizes(most, parameters.speculative is not None)
    running = parameters.max_running_requests
    if max(sizes) > running:
        sizes = [*(size for size in sizes if size < running), running]
    return tuple(sorted(set(sizes)))
