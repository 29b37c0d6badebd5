"""`synthetic`: requests drawn from an arrival process and distributions of lengths."""
import math
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.domain import records
from simulator.errors import InputErrors, KeyFault
from simulator.workload.columns import Columns, Prompts, in_arrival_order, nearest
from simulator.workload.drawing.arrivals import arrival_times_s
from simulator.workload.drawing.lengths import zipf_ranks
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS
from simulator.workload.wanted import WANTED, Wanted

MAX_REQUESTS = 10**9


class Arrival(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When requests arrive; the keys of the process stand in the same table."""

    process: Annotated[str, Meta(description="what draws the gaps between arrivals")] = "poisson"
    parameters: Annotated[Any, Meta(extra={"kind": "arrival"})]


class LengthChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number of tokens; the keys of the distribution stand in the same table."""

    distribution: Annotated[str, Meta(description="what draws the lengths")]
    parameters: Annotated[Any, Meta(extra={"kind": "length_distribution"})]


class SystemPrompts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prompts that requests have in common, in front of what `prompt_tokens` draws."""

    share: Annotated[float, Meta(ge=0, le=1, description="part of the requests that begin with one")] = 1.0
    num_tokens: Annotated[int, Meta(ge=1, le=MAX_TOKENS, description="length of each")]
    num_prompts: Annotated[int, Meta(ge=1, le=2**24, description="how many different ones")] = 1
    popularity: Annotated[Literal["uniform", "zipf"], Meta(description="how requests choose among them")] = "uniform"
    exponent: Annotated[float, Meta(ge=0, le=100, description="zipf: the k-th has weight 1 / k**exponent")] = 1.0


class SyntheticParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Drawn requests: so many, or all before some time, or what both allow."""

    num_requests: Annotated[Annotated[int, Meta(ge=1, le=MAX_REQUESTS)] | None, Meta(description=(
        "how many requests"))] = None
    duration_s: Annotated[Annotated[float, Meta(gt=0, le=MAX_TIME_NS / 1e9)] | None, Meta(description=(
        "no request arrives at or after this time"))] = None
    arrival: Annotated[Arrival | None, Meta(description=(
        "when requests arrive; absent where [workload.load] says so"))] = None
    prompt_tokens: Annotated[LengthChoice, Meta(description="prompt lengths, system prompts not counted")]
    output_tokens: Annotated[LengthChoice, Meta(description="output lengths")]
    system_prompts: Annotated[SystemPrompts | None, Meta(description="absent: nothing is shared")] = None


class Synthetic:
    """A drawn workload.

    Each property has its own random stream, so changing one leaves the others as they are.
    """

    Parameters = SyntheticParameters

    def __init__(self, parameters: SyntheticParameters):
        arrival, prompt, output = parameters.arrival, parameters.prompt_tokens, parameters.output_tokens
        self.parameters = parameters
        self.arrival = arrival and registry.load("arrival", arrival.process)(arrival.parameters)
        self.prompt_tokens = registry.load("length_distribution", prompt.distribution)(prompt.parameters)
        self.output_tokens = registry.load("length_distribution", output.distribution)(output.parameters)

    def columns(self, streams: RandomStreams, wanted: Wanted = WANTED) -> Columns:
        """Return the requests.

        Raises
        ------
        InputErrors
            No request, too many, too late, or with a prompt that is empty or too long.
        """
        if not (self.parameters.num_requests or self.parameters.duration_s or wanted.num_requests):
            raise InputErrors([KeyFault("workload: give num_requests, duration_s, or both")])
        if wanted.arrivals:
            arrival_ns = self._arrivals(streams.generator("arrivals"))
        else:
            arrival_ns = np.zeros(wanted.num_requests or self.parameters.num_requests, np.int64)
        n = len(arrival_ns)
        prompt_tokens = self.prompt_tokens.draw(streams.generator("prompt_lengths"), n)
        if prompt_tokens.min() < 1:
            raise InputErrors([KeyFault("workload.prompt_tokens: draws a prompt of 0 tokens; raise min to 1 or more")])
        output_tokens = self.output_tokens.draw(streams.generator("output_lengths"), n)
        prompts = None
        if self.parameters.system_prompts is not None:
            prompts, prompt_tokens = _with_system_prompts(
                self.parameters.system_prompts, streams.generator("system_prompts"), prompt_tokens)
        return in_arrival_order(Columns(arrival_ns, prompt_tokens, output_tokens, prompts=prompts))

    def _arrivals(self, generator) -> np.ndarray:
        given = self.parameters
        if self.arrival is None:
            raise InputErrors([KeyFault(
                "workload.arrival: missing; expected a table with process and rate_per_s, or a closed loop in "
                "[workload.load]")])
        duration_s = math.inf if given.duration_s is None else given.duration_s
        if given.num_requests is None and not duration_s * self.arrival.rate_per_s <= MAX_REQUESTS:
            raise InputErrors([KeyFault(
                f"workload.duration_s: {duration_s:g} s at {self.arrival.rate_per_s:g} requests/s are more than "
                f"{MAX_REQUESTS} requests; give num_requests or a lower rate")])
        times_s = arrival_times_s(self.arrival, generator, given.num_requests, duration_s)
        if not len(times_s):
            raise InputErrors([KeyFault(f"workload.duration_s: no request arrives before {duration_s:g} s")])
        if times_s[-1] * 1e9 > MAX_TIME_NS:
            raise InputErrors([KeyFault(f"workload.arrival: the last request arrives after {MAX_TIME_NS / 1e9:g} s")])
        return nearest(times_s * 1e9)


def _with_system_prompts(given: SystemPrompts, generator, prompt_tokens: np.ndarray) -> tuple[Prompts, np.ndarray]:
    """Put a system prompt in front of a share of the prompts; return these as segments, and their lengths.

    In front of, not inside: as `vllm bench serve --random-prefix-len` counts.
    """
    n = len(prompt_tokens)
    has_one = generator.random(n) < given.share
    exponent = given.exponent if given.popularity == "zipf" else 0.0
    chosen = zipf_ranks(generator, n, given.num_prompts, exponent)
    lengths = prompt_tokens + given.num_tokens * has_one
    if lengths.max() > MAX_TOKENS:
        raise InputErrors([KeyFault(
            f"workload.system_prompts.num_tokens: {given.num_tokens} makes a prompt of {lengths.max()} tokens, "
            f"at most {MAX_TOKENS} are possible")])
    rows = np.flatnonzero(has_one)
    streams = np.column_stack([records.named_stream(chosen[rows]), records.own_stream(rows)]).ravel()
    num_tokens = np.column_stack([np.full(len(rows), given.num_tokens), prompt_tokens[rows]]).ravel()
    return Prompts(2 * has_one, streams, num_tokens), lengths
