"""Share of memory that an engine gives to KV, under its own name: the rule by which blocks are counted.

Sources: vLLM, vllm/v1/worker/gpu_worker.py (determine_available_memory); TensorRT-LLM,
tensorrt_llm/_torch/pyexecutor/_util.py and llm_args.py (free_gpu_memory_fraction = 0.9); SGLang,
python/sglang/srt/model_executor (free memory after loading less that before it x (1 - mem_fraction_static)).
ai-dynamo/aiconfigurator writes the three side by side (its issue 1159 and pull request 652).
"""
from typing import Literal

import msgspec

OF_VLLM = 'expected none, it is vLLM\'s; "{}" has {}'      # a fault of gpu_memory_utilization: scheduler, its own key


class KvShare(msgspec.Struct, frozen=True):
    """A rule and its share.

    key : the engine's argument. engine : name of the engine. share : fraction of the memory that `of` names.
    of : "total": share of the total, less all other use; "free": share of memory less all other use; "static": share of
        the total, less weights and states: activations have the rest; "given": share is the size itself, in bytes.
    """

    key: str
    engine: str
    share: float
    of: Literal["total", "free", "static", "given"] = "total"

    @property
    def rule(self) -> str:
        """Return the rule in words, with its share."""
        words = {"total": "memory x {} - all else", "free": "(memory - all else) x {}",
                 "static": "memory x {} - weights and states", "given": "{}"}[self.of]
        return f"KV: {words.format(f'{self.key} {self.text}')} ({self.engine}'s rule)"

    @property
    def text(self) -> str:
        """Return the share in words."""
        return f"{self.share:.0f}" if self.of == "given" else f"{self.share:g}"

    def kv_bytes(self, total: float, kept: float, passing: float) -> float:
        """Return the bytes left for KV.

        kept : weights, states. passing : activations, and memory outside PyTorch.
        """
        if self.of == "given":
            return self.share
        if self.of == "free":
            return (total - kept - passing) * self.share
        return total * self.share - kept - (passing if self.of == "total" else 0.0)


def vllm_share(gpu_memory_utilization: float) -> KvShare:
    """Return vLLM's rule."""
    return KvShare("gpu_memory_utilization", "vLLM", gpu_memory_utilization)
