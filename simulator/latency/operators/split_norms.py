"""Norms of queries and keys over all heads, which tensor parallelism splits.

A rank has the squares of its own heads alone. MiniMax-M2 adds the sums of all ranks, two float32 a token, by an
all-reduce between two passes; OLMo gathers queries and keys whole, and norms them on every rank.

Kernels beside the all-reduce of MiniMax-M2:

- vLLM before 0.23: four of torch.compile, a sum and a scaling each of queries and keys (vllm-project/vllm pull request
  31493; before 0.15 each had an all-reduce of its own);
- vLLM from then on: none up to 2,048 tokens, as one kernel sums, exchanges and scales (pull requests 37045, 43410;
  vllm/model_executor/layers/minimax_rms_norm/rms_norm_tp.py in 0.32.0), beyond them two;
- SGLang: two (0.5.9, srt/models/minimax_m2.py; sgl-project/sglang pull request 14416 counts them);
- TensorRT-LLM: none (NVIDIA/TensorRT-LLM pull request 12163).

OLMo: vllm/model_executor/models/olmoe.py in 0.32.0. Weights of Cohere and StableLM are of all heads as well, but each
head has its own norm, which nothing splits.
"""
from typing import NamedTuple

import numpy as np

from simulator.latency.operators.versions import is_before, is_vllm

GATHERED = ("Olmo2ForCausalLM", "Olmo3ForCausalLM", "OlmoeForCausalLM", "FlexOlmoForCausalLM", "OlmoHybridForCausalLM")
OF_EACH_HEAD = ("CohereForCausalLM", "StableLmForCausalLM")
SUM_BYTES = 8                   # two float32 a token
FUSED_TOKENS = 2048


class Exchange(NamedTuple):
    """What tensor-parallel ranks do for the norms of one layer.

    kernels : of memory traffic, by tokens. gathers : whether queries and keys are gathered, instead of sums added.
    reduces : all-reduces of sums.
    """

    kernels: np.ndarray
    gathers: bool
    reduces: int


def exchange_of(part, deployment, parameters, tokens: np.ndarray) -> Exchange | None:
    """Return the exchange for the norms of a layer; None: no rank needs another one.

    part : as all ranks hold it. parameters : OperatorsParameters.
    """
    architecture = deployment.model.architecture
    if not part.norms_all_heads or architecture in OF_EACH_HEAD or deployment.parallelism.tensor_parallel == 1:
        return None
    if architecture in GATHERED:
        return Exchange(np.full(len(tokens), 2.0), True, 0)
    if parameters.framework == "sglang":
        return Exchange(np.full(len(tokens), 2.0), False, 1)
    if is_vllm(parameters) and is_before(parameters, "0.23"):
        return Exchange(np.full(len(tokens), 4.0), False, 2 if is_before(parameters, "0.15") else 1)
    return Exchange(np.where(tokens <= FUSED_TOKENS, 0.0, 2.0), False, 1)
