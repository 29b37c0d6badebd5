"""Additions of the scheduler `sglang` to the time of a batch: CUDA graphs, and the launches of kernels without.

Source: sglang 0.5.23, sglang/srt/arg_groups/cuda_graph_hook.py; 0.5.9, sglang/srt/server_args.py, where
enable_piecewise_cuda_graph is off by default.
"""
from functools import partial

from simulator.domain.server_defaults.cards import as_card
from simulator.domain.server_defaults.sglang import decode_sizes, limits_of
from simulator.latency.overheads.engine_graphs import EngineGraphs, with_graphs

UNPADDED = "cuda_graphs: prompts are not padded to the sizes of SGLang's prefill graphs"


def around(parameters, deployment) -> tuple:
    """Return functions from LatencyModel to LatencyModel.

    parameters : SglangParameters. deployment : None where the experiment has no [model] or no [hardware].
    """
    has_decode = parameters.cuda_graph_backend_decode != "disabled"
    has_prefill = has_decode and parameters.cuda_graph_backend_prefill != "disabled"
    sizes = _sizes(deployment) if has_decode else ()
    return (partial(with_graphs, EngineGraphs(
        sizes, has_prefill, parameters.eager_us_per_layer, "sglang", (UNPADDED,) if has_prefill else ()),
        deployment),)


def _sizes(deployment) -> tuple[int, ...]:
    """Return the sequences of decode graphs."""
    if deployment is None or deployment.accelerator is None:
        return ()
    return tuple(decode_sizes(limits_of(as_card(deployment.accelerator), deployment.parallelism.tensor_parallel)[1]))
