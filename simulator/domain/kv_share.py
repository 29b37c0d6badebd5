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


class StatePool(msgspec.Struct, frozen=True):
    """SGLang's slots for recurrent states: of running sequences and cached prefixes.

    Source: sglang 0.5.23, sglang/srt/mem_cache/kv_cache_configurator.py (_handle_max_mamba_cache,
    _calculate_mamba_ratio) and arg_groups/overrides.py (mamba_radix_cache_strategy).

    slot_bytes : one state of all layers on a rank. overlaps : batches are scheduled while others execute.
    ratio : bytes of states for each of KV.
    """

    slot_bytes: float
    overlaps: bool
    page_size: int = 1
    keeps_prefixes: bool = True
    ratio: float = 0.9

    @property
    def per_request(self) -> int:
        """Slots of a running request.

        With cached prefixes three, and those that track its next states.
        """
        if not self.keeps_prefixes:
            return 1
        return 3 + (2 if self.overlaps else int(self.page_size > 1))

    def slots(self, free_bytes: float) -> int:
        """Return the slots, less one for padding, in the memory that weights leave."""
        budget = free_bytes * self.ratio / (1 + self.ratio)
        return max(int((budget - self.slot_bytes) // self.slot_bytes), 0)

    def num_bytes(self, free_bytes: float) -> float:
        """Return the bytes of all slots."""
        return (self.slots(free_bytes) + 1) * self.slot_bytes
