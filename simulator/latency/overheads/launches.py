"""Host time to launch the kernels of an iteration one by one: their number times the time of a launch.

The accelerator works meanwhile, so the longer of host and accelerator time counts. A launch is a call of PyTorch or
Triton with the Python around it in an engine's layers: far more than the few microseconds of the driver.

Published times of engines, by the launches counted below:

- vLLM 0.28 (issue 45709 of vllm-project/vllm, June and August 2026), Qwen3-30B-A3B on 4 cards, 1,014 launches, closed
  loops of 8 clients, TPOT less the prompts of the other seven: 31.9 us with enforce_eager and 33.1 us with
  torch.compile on RTX 4090 D, 32.3 us with torch.compile on L20; as graphs the same iterations take 10.0 and 11.8 ms.
- SGLang (pull request 12160 of sgl-project/sglang, October 2025): one new token of DeepSeek-V3 behind a cached prompt,
  82.64 ms launched one by one, 23.10 ms as a graph; 1,821 launches at TP 8, the shared expert being a routed one there.
- TensorRT-LLM (pull request 12653 of NVIDIA/TensorRT-LLM, April 2026): about 35 us from one dispatch to the next, in
  LTX-2 on 8 cards, by its PyTorch code; none of its language models was timed.

Hosts differ, too: vLLM on eight H100 has 54 us, by the throughput of a user's server (issue 9 of NetX-lab/Frontier).

The counts are from the layers of vLLM 0.32.0 (vllm/model_executor/models: llama, qwen3_moe, deepseek_v2;
layers/fused_moe) with `enforce_eager`, which turns torch.compile off as well (vllm/config/vllm.py). Code of
torch.compile fuses some kernels, and takes as long all the same.
"""
from collections import Counter
from typing import Annotated, NamedTuple

from msgspec import Meta

from simulator.domain.deployment import Deployment
from simulator.domain.layer_list import Layer

EagerUs = Annotated[float, Meta(ge=0, le=1e9)]
EAGER_US_PER_LAYER = (
    "minimum time per layer of a batch without graphs, with kernels launched one by one; default: 32.5 to "
    "45.4 us per kernel of a layer, by the engine, if the backend composes iterations of kernels, see "
    "latency/overheads/launches.py; else 0")
NORM = 1                        # with the addition of the residual
MLP = 3                         # up with gate, activation, down
EXPERTS = 8                     # router, choice, two to sort, up with gate, activation, down, sum
BESIDE = 4                      # a shared expert or MLP beside the experts, and the sum
ALL_REDUCE = 2                  # into the shared buffer, and out of it
ONCE = 6                        # embedding, last norm, head, gathering of logits, two to sample


class Host(NamedTuple):
    """The host of a published server.

    launch_us : time from one launch to the next. source : engine and model, in prose.
    """

    launch_us: float
    source: str


# By scheduler.
HOSTS = {"vllm": Host(32.5, "vLLM, Qwen3-30B-A3B"), "sglang": Host(45.4, "SGLang, DeepSeek-V3"),
         "tensorrt_llm": Host(35.0, "TensorRT-LLM, LTX-2")}


class Launching(NamedTuple):
    """Time to launch the kernels of one iteration, and notes on it.

    us, decode_us : of an iteration with prompts, of decodes alone.
    """

    us: float
    decode_us: float
    notes: tuple[str, ...] = ()


def launching(deployment: Deployment, host: Host) -> Launching:
    """Return the time to launch the counted kernels of an iteration."""
    number, of_decodes = num_launches(deployment), num_launches(deployment, is_decode=True)
    us, decode_us = host.launch_us * number, host.launch_us * of_decodes
    fewer = f", {of_decodes:,} of decodes alone" * (of_decodes < number)
    notes = [f"cuda_graphs: without graphs an iteration takes at least {us * 1e-3:.1f} ms, {number:,} launches of "
             f"{host.launch_us} us{fewer} by the host of a published server ({host.source}); published ones have 32 to "
             "54, measured ones go into eager_us_per_layer"]
    uncounted = Counter()
    for mixer, layers in deployment.model.mixers:
        uncounted[mixer.title] += layers * (mixer.launches is None)
    notes += [f"cuda_graphs: the number of kernels of the {layers} layers of {title} is unknown: their launches "
              "are not counted" for title, layers in uncounted.items() if layers]
    return Launching(us, decode_us, tuple(notes))


def num_launches(deployment: Deployment, is_decode: bool = False) -> int:
    """Return the number of kernels of an iteration, unknown ones excluded.

    is_decode : it has no prompts.
    """
    model = deployment.model
    return ONCE + sum(len(numbers) * _of_layer(deployment, layer, is_decode) for layer, numbers in model.kinds.items())


def _of_layer(deployment: Deployment, layer: Layer, is_decode: bool) -> int:
    sums = layer.num_sublayers * ALL_REDUCE * (deployment.parallelism.tensor_parallel > 1)
    kernels = layer.norms * NORM + sums
    for part in (mixer.part for mixer in layer.mixers if mixer.part.launches):
        kernels += part.launches - part.prompt_launches * is_decode
        kernels += part.num_inputs * _quantizes(deployment, deployment.matrix_dtype)
    return kernels + _of_networks(deployment, layer)


def _of_networks(deployment: Deployment, layer: Layer) -> int:
    if layer.moe is None:
        return len(layer.networks) * (MLP + 2 * _quantizes(deployment, deployment.matrix_dtype))
    experts = EXPERTS + 2 * _quantizes(deployment, deployment.expert_dtype)
    return experts + BESIDE * (len(layer.dense_networks) or layer.moe.shared_expert is not None)


def _quantizes(deployment: Deployment, dtype: str) -> bool:
    """Return whether a separate kernel quantises the inputs of products with such weights."""
    return dtype == "fp8" and deployment.multiplies_fp8
