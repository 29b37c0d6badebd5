"""`vllm_random`: the dataset `random` of `vllm bench serve`, with equal lengths.

Source: vllm-project/vllm, vllm/benchmarks/datasets/datasets.py, RandomDataset, commit 003cf029.
"""
from math import ceil, floor
from typing import Annotated

import numpy as np
from msgspec import Meta

from simulator.workload.limits import MAX_TOKENS
from simulator.workload.presets.base import Drawn
from simulator.workload.presets.prefixes import with_prefixes
from simulator.workload.presets.vllm_bench import VllmBench, VllmBenchParameters

Length = Annotated[int, Meta(ge=0, le=MAX_TOKENS // 4, extra={"unit": "tokens"})]
Ratio = Annotated[float, Meta(ge=0, lt=1)]


class VllmRandomParameters(VllmBenchParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lengths around a middle, every one in the range equally likely."""

    input_len: Annotated[Length, Meta(description="middle of the prompt lengths, the prefix not counted")] = 1024
    output_len: Annotated[Length, Meta(description="middle of the output lengths")] = 128
    input_range_ratio: Annotated[Ratio, Meta(description="largest relative deviation of a prompt length")] = 0.0
    output_range_ratio: Annotated[Ratio, Meta(description="largest relative deviation of an output length")] = 0.0
    prefix_len: Annotated[Length, Meta(description="beginning that all prompts share")] = 0
    special_tokens: Annotated[Length, Meta(description=(
        "tokens that the tokenizer adds to a text, subtracted from input_len"))] = 0

    def __post_init__(self):
        super().__post_init__()
        if self.prefix_len + self.input_bounds()[0] < 1:
            raise ValueError("input_len: the shortest prompt would have no token")

    def input_bounds(self) -> tuple[int, int]:
        """Return the shortest and the longest prompt after the prefix."""
        middle = max(0, self.input_len - self.special_tokens)
        return floor(middle * (1 - self.input_range_ratio)), ceil(middle * (1 + self.input_range_ratio))

    def output_bounds(self) -> tuple[int, int]:
        """Return the shortest and the longest output."""
        ratio = self.output_range_ratio
        return max(1, floor(self.output_len * (1 - ratio))), max(1, ceil(self.output_len * (1 + ratio)))


class VllmRandom(VllmBench):
    """`vllm_random`: as `vllm bench serve --dataset-name random`, with its gaps."""

    Parameters = VllmRandomParameters

    def draw(self, streams, count):
        """Return the requests: all inputs are drawn, then all outputs."""
        given, generator = self._parameters, np.random.default_rng(self._parameters.seed)
        own, outputs = (generator.integers(low, high + 1, size=count)
                        for low, high in (given.input_bounds(), given.output_bounds()))
        prompts = with_prefixes(np.zeros(count, np.int64), given.prefix_len, own) if given.prefix_len else None
        return Drawn(own + given.prefix_len, outputs, prompts)
