"""Host time to launch the kernels of an iteration one by one: their number times the time of a launch.

The accelerator works meanwhile, so the longer of host and accelerator time counts. A launch is a call of PyTorch or
Triton with the Python around it in an engine's layers: far more than the few microseconds of the driver.

`LAUNCH_US`: one new token of DeepSeek-V3 behind a cached prompt took SGLang 82.64 ms launched one by one, and 23.10 ms
as a graph (sgl-project/sglang pull request 12160, October 2025): 1,821 launches as counted below at TP 8, the shared
expert being one of the routed ones there.

The counts are from the layers of vLLM 0.32.0 (vllm/model_executor/models: llama, qwen3_moe, deepseek_v2;
layers/fused_moe) with `enforce_eager`, which turns torch.compile off as well (vllm/config/vllm.py). With torch.compile
on, generated code launches the kernels beyond the captured sizes; no time of it has been published.
"""
from collections import Counter
from typing import NamedTuple

from simulator.domain.deployment import Deployment
from simulator.domain.layer_list import Layer

LAUNCH_US = 45.4
NORM = 1                        # with the addition of the residual
MLP = 3                         # up with gate, activation, down
EXPERTS = 8                     # router, choice, two to sort, up with gate, activation, down, sum
BESIDE = 4                      # a shared expert or MLP beside the experts, and the sum
ALL_REDUCE = 2                  # into the shared buffer, and out of it
ONCE = 6                        # embedding, last norm, head, gathering of logits, two to sample


class Launching(NamedTuple):
    """Time to launch the kernels of one iteration, and notes on it."""

    us: float
    notes: tuple[str, ...] = ()


def launching(deployment: Deployment) -> Launching:
    """Return the time to launch the counted kernels of an iteration."""
    number = num_launches(deployment)
    us = LAUNCH_US * number
    notes = [f"cuda_graphs: without graphs an iteration takes at least {us * 1e-3:.1f} ms, {number:,} launches of "
             f"{LAUNCH_US} us by the host of one published server (SGLang, DeepSeek-V3); measured ones go into "
             "eager_us_per_layer"]
    uncounted = Counter()
    for mixer, layers in deployment.model.mixers:
        uncounted[mixer.title] += layers * (mixer.launches is None)
    notes += [f"cuda_graphs: the number of kernels of the {layers} layers of {title} is unknown: their launches "
              "are not counted" for title, layers in uncounted.items() if layers]
    return Launching(us, tuple(notes))


def unpriced(deployment: Deployment) -> tuple[str, ...]:
    """Return the notes for kernels without a graph that torch.compile's code launches."""
    us = LAUNCH_US * num_launches(deployment)
    return (f"cuda_graphs: the time to launch the kernels of a batch without graph is unknown with torch.compile, and "
            f"not counted; without torch.compile such a batch takes {us * 1e-3:.0f} ms or more. eager_us_per_layer "
            "sets it",)


def num_launches(deployment: Deployment) -> int:
    """Return the number of kernels of an iteration, unknown ones excluded."""
    model = deployment.model
    return ONCE + sum(len(numbers) * _of_layer(deployment, layer) for layer, numbers in model.kinds.items())


def _of_layer(deployment: Deployment, layer: Layer) -> int:
    sums = layer.num_sublayers * ALL_REDUCE * (deployment.parallelism.tensor_parallel > 1)
    kernels = layer.norms * NORM + sums
    for part in (mixer.part for mixer in layer.mixers if mixer.part.launches):
        kernels += part.launches + part.num_inputs * _quantizes(deployment, deployment.matrix_dtype)
    return kernels + _of_networks(deployment, layer)


def _of_networks(deployment: Deployment, layer: Layer) -> int:
    if layer.moe is None:
        return len(layer.networks) * (MLP + 2 * _quantizes(deployment, deployment.matrix_dtype))
    experts = EXPERTS + 2 * _quantizes(deployment, deployment.expert_dtype)
    return experts + BESIDE * (len(layer.dense_networks) or layer.moe.shared_expert is not None)


def _quantizes(deployment: Deployment, dtype: str) -> bool:
    """Return whether a separate kernel quantises the inputs of products with such weights."""
    return dtype == "fp8" and deployment.multiplies_fp8
