"""Additions of the scheduler `sglang` to the time of a batch: CUDA graphs, launches of kernels without, drafts.

Source: sglang 0.5.23, sglang/srt/arg_groups/cuda_graph_hook.py; 0.5.9, sglang/srt/server_args.py, where
enable_piecewise_cuda_graph is off by default.
"""
from functools import partial

from simulator.domain.server_defaults.cards import as_card
from simulator.domain.server_defaults.sglang import decode_sizes, limits_of
from simulator.latency.overheads.drafter import Drafter
from simulator.latency.overheads.engine_graphs import EngineGraphs, with_graphs
from simulator.scheduling.drafter_prices import price_of, published_notes, shaped

UNPADDED = "cuda_graphs: prompts are not padded to the sizes of SGLang's prefill graphs"


def around(parameters, deployment) -> tuple:
    """Return functions from LatencyModel to LatencyModel.

    parameters : SglangParameters. deployment : None where the experiment has no [model] or no [hardware].
    """
    drafts = parameters.speculative
    has_decode = parameters.cuda_graph_backend_decode != "disabled"
    has_prefill = has_decode and parameters.cuda_graph_backend_prefill != "disabled"
    sizes = _sizes(deployment, drafts is not None) if has_decode else ()
    found = [partial(with_graphs, EngineGraphs(
        sizes, has_prefill, parameters.eager_us_per_layer, "sglang", (UNPADDED,) if has_prefill else (),
        1 if drafts is None else drafts.num_draft_tokens), deployment)]
    if drafts is not None and not drafts.names_model:
        found.append(partial(_with_drafter, drafts, deployment))
    return tuple(found)


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


def _sizes(deployment, has_drafts: bool) -> tuple[int, ...]:
    """Return the sequences of decode graphs."""
    if deployment is None or deployment.accelerator is None:
        return ()
    most = limits_of(as_card(deployment.accelerator), deployment.parallelism.tensor_parallel)[1]
    return tuple(decode_sizes(most, has_drafts))
