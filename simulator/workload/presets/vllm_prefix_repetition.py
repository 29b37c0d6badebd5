"""`vllm_prefix_repetition`: the dataset `prefix_repetition` of `vllm bench serve`.

Source: vllm-project/vllm, vllm/benchmarks/datasets, PrefixRepetitionRandomDataset, commit 003cf029.
"""
import random
from typing import Annotated

import numpy as np
from msgspec import Meta

from simulator.errors import InputErrors, KeyFault
from simulator.workload.limits import MAX_TOKENS
from simulator.workload.presets.base import Drawn
from simulator.workload.presets.prefixes import with_prefixes
from simulator.workload.presets.vllm_bench import VllmBench, VllmBenchParameters

Length = Annotated[int, Meta(ge=0, le=MAX_TOKENS // 2, extra={"unit": "tokens"})]


class VllmPrefixRepetitionParameters(VllmBenchParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prompts of one length, in groups with one beginning each."""

    num_prefixes: Annotated[int, Meta(ge=1, le=2**24, description="number of different beginnings")] = 10
    prefix_len: Annotated[Length, Meta(description="length of a beginning")] = 256
    suffix_len: Annotated[Length, Meta(description="length of a prompt's own part, after its beginning")] = 256
    output_len: Annotated[Length, Meta(description="output length of every request")] = 128

    def __post_init__(self):
        super().__post_init__()
        if self.prefix_len + self.suffix_len < 1:
            raise ValueError("prefix_len and suffix_len: the prompts would have no token")


class VllmPrefixRepetition(VllmBench):
    """`vllm_prefix_repetition`: equally many requests a prefix; the rest is unsent."""

    Parameters = VllmPrefixRepetitionParameters

    def sent_of(self, count):
        """Return a multiple of num_prefixes; at least one, since `draw` refuses less."""
        return max(count // self._parameters.num_prefixes * self._parameters.num_prefixes, 1)

    def draw(self, streams, count):
        """Return the requests in the tool's order."""
        given = self._parameters
        each = count // given.num_prefixes
        if not each:
            raise InputErrors([KeyFault(
                f"workload.num_requests: {count} requests are fewer than num_prefixes = {given.num_prefixes}")])
        order = [prefix for prefix in range(given.num_prefixes) for _ in range(each)]
        random.Random(given.seed).shuffle(order)
        own = np.full(len(order), given.suffix_len)
        notes = () if len(order) == count else (
            f"preset vllm_prefix_repetition: {count - len(order)} of {count} requests are not sent, so that each of "
            f"{given.num_prefixes} prefixes has {each}, as in vllm bench serve.",)
        return Drawn(own + given.prefix_len, np.full(len(order), given.output_len),
                     with_prefixes(np.array(order), given.prefix_len, own), notes)
