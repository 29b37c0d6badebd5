"""`none`: lengths from distributions, and system prompts."""
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from simulator import registry
from simulator.errors import InputErrors, KeyFault
from simulator.workload.drawing.choices import LengthChoice
from simulator.workload.drawing.lengths import zipf_ranks
from simulator.workload.limits import MAX_TOKENS
from simulator.workload.presets.base import Drawn, Preset, PresetParameters
from simulator.workload.presets.prefixes import with_prefixes

MOST_PROMPTS = 2**24


class SystemPrompts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prompts that requests have in common, before the tokens of `prompt_tokens`."""

    share: Annotated[float, Meta(ge=0, le=1, description="part of the requests that begin with a system prompt")] = 1.0
    num_tokens: Annotated[int, Meta(ge=1, le=MAX_TOKENS, description="length of a system prompt")]
    num_prompts: Annotated[int, Meta(ge=1, le=MOST_PROMPTS, description="number of different ones")] = 1
    popularity: Annotated[Literal["uniform", "zipf"], Meta(description="how requests choose one")] = "uniform"
    exponent: Annotated[float, Meta(ge=0, le=100, description="zipf: the k-th has weight 1 / k**exponent")] = 1.0
    num_questions: Annotated[Annotated[int, Meta(ge=1, le=2**24)] | None, Meta(description=(
        "different questions behind each; all prompts then come in one random order, again and again, as "
        "inference-perf sends them; absent: each request has a question of its own"))] = None

    def __post_init__(self):
        if self.num_questions is not None and (self.share < 1.0 or self.popularity != "uniform"):
            raise ValueError('num_questions: each prompt comes as often as any other: expected share = 1.0 and '
                             'popularity = "uniform"')
        if self.num_prompts * (self.num_questions or 1) > MOST_PROMPTS:
            raise ValueError(f"num_questions: {self.num_prompts * self.num_questions} prompts, at most {MOST_PROMPTS} "
                             "are possible")


class OwnParameters(PresetParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lengths and shared parts, all given in the file."""

    prompt_tokens: Annotated[LengthChoice, Meta(description="prompt lengths, system prompts not counted")]
    output_tokens: Annotated[LengthChoice, Meta(description="output lengths")]
    system_prompts: Annotated[SystemPrompts | None, Meta(description="absent: nothing is shared")] = None

    def fill_load(self, given, bounds):
        """Return the load unchanged."""
        return given


class Own(Preset):
    """`none`: all distributions are given in the file.

    Each property has its own random stream, so changing one leaves the others as they are.
    """

    Parameters = OwnParameters
    draws_all_at_once = False

    def __init__(self, parameters: OwnParameters):
        prompt, output = parameters.prompt_tokens, parameters.output_tokens
        self._system_prompts = parameters.system_prompts
        self._prompt_tokens = registry.load("length_distribution", prompt.distribution)(prompt.parameters)
        self._output_tokens = registry.load("length_distribution", output.distribution)(output.parameters)

    def draw(self, streams, count):
        """Return the requests; raise InputErrors for a prompt that is empty or too long."""
        return self.draw_part(streams, 0, count, count)

    def draw_part(self, streams, first: int, count: int, total: int) -> Drawn:
        """Return `count` of `total` requests, as `draw` does.

        first : row of the first one.

        One part after the other gives the same requests if each stream of `streams` goes on.
        """
        prompt_tokens = self._prompt_tokens.draw(streams.generator("prompt_lengths"), count)
        if prompt_tokens.min() < 1:
            raise InputErrors([KeyFault("workload.prompt_tokens: draws a prompt of 0 tokens; raise min to 1 or more")])
        output_tokens = self._output_tokens.draw(streams.generator("output_lengths"), count)
        if self._system_prompts is None:
            return Drawn(prompt_tokens, output_tokens)
        generator = streams.generator("system_prompts")
        if self._system_prompts.num_questions is not None:
            return self._again_and_again(generator, first, prompt_tokens, output_tokens)
        has_one = generator.random(count) < self._system_prompts.share
        chosen = self._chosen(streams.generator_after("system_prompts", total), count)
        chosen[~has_one] = -1
        prompts = with_prefixes(chosen, self._system_prompts.num_tokens, prompt_tokens, first_row=first)
        return Drawn(self._whole(prompt_tokens, has_one), output_tokens, prompts)

    def _chosen(self, generator, count) -> np.ndarray:
        """Return the system prompts in front of `count` prompts.

        In front of, not inside: as `vllm bench serve --random-prefix-len` counts.
        """
        given = self._system_prompts
        return zipf_ranks(generator, count, given.num_prompts, given.exponent if given.popularity == "zipf" else 0.0)

    def _again_and_again(self, generator, first, prompt_tokens, output_tokens) -> Drawn:
        """Let each question of each system prompt come in turn; the first time gives its lengths."""
        given = self._system_prompts
        if first == 0:
            self._order = generator.permutation(given.num_prompts * given.num_questions)
            self._first_lengths = np.empty((2, 0), np.int64)
        left = max(len(self._order) - first, 0)
        self._first_lengths = np.hstack([self._first_lengths, [prompt_tokens[:left], output_tokens[:left]]])
        places = (first + np.arange(len(prompt_tokens))) % len(self._order)
        questions, (own, outputs) = self._order[places], self._first_lengths[:, places]
        prompts = with_prefixes(questions % given.num_prompts, given.num_tokens, own, given.num_prompts + questions)
        return Drawn(self._whole(own, 1), outputs, prompts)

    def _whole(self, prompt_tokens, has_one):
        """Return the lengths with the system prompts; raise InputErrors for one that is too long."""
        num_tokens = self._system_prompts.num_tokens
        lengths = prompt_tokens + num_tokens * has_one
        if lengths.max() > MAX_TOKENS:
            raise InputErrors([KeyFault(
                f"workload.system_prompts.num_tokens: {num_tokens} makes a prompt of {lengths.max()} tokens, at most "
                f"{MAX_TOKENS} are possible")])
        return lengths
