"""Additions of the scheduler `tensorrt_llm` to the time of a batch: CUDA graphs, and the launches of kernels without.

Its PyTorch backend captures batches of decodes alone. Source: NVIDIA/TensorRT-LLM, tensorrt_llm/llmapi/llm_args.py,
CudaGraphConfig: 1, 2, 4, multiples of 8 up to 128, then steps of 64, with enable_padding.
"""
from functools import partial

from simulator.latency.overheads.engine_graphs import EngineGraphs, with_graphs

PADDED = ("cuda_graphs: decodes are padded as with cuda_graph_config.enable_padding; without it TensorRT-LLM launches "
          "the kernels of most batches of more than 32 decodes one by one")


def around(parameters, deployment) -> tuple:
    """Return functions from LatencyModel to LatencyModel.

    parameters : TensorrtLlmParameters. deployment : None where the experiment has no [model] or no [hardware].
    """
    sizes = decode_sizes(parameters.cuda_graph_max_batch_size)
    return (partial(with_graphs, EngineGraphs(
        tuple(sizes), False, parameters.eager_us_per_layer, "tensorrt_llm", (PADDED,) if sizes else ()),
        deployment),)


def decode_sizes(most: int) -> list[int]:
    """Return the sequences of decode graphs, up to the largest; 0: there are none."""
    if most == 0:
        return []
    sizes = [size for size in (1, 2, 4, *range(8, 129, 8), *range(192, most + 1, 64)) if size <= most]
    return sizes if most in sizes else [*sizes, most]
