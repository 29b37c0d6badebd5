"""Drawn requests, chunk by chunk: each property goes on in its own random stream, as if all were drawn at once."""
import math

import numpy as np

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.domain import records
from simulator.errors import InputErrors, KeyFault
from simulator.workload import chunks
from simulator.workload.base import Workload
from simulator.workload.build import build_workload
from simulator.workload.chunked_loop import loop_of
from simulator.workload.columns import Columns
from simulator.workload.drawing.choices import LengthChoice
from simulator.workload.drawing.timing import MAX_REQUESTS, check_number, in_ns

# Classes with draws that follow each other in one stream: a draw of n numbers and one of m are one of n + m.
PROCESSES = ("poisson", "constant", "gamma", "weibull", "burst")
RATES = ("diurnal", "mmpp", "piecewise", "spike")
PAUSES = ("constant", "exponential", "lognormal", "uniform")
LENGTHS = ("constant", "uniform", "normal", "lognormal", "exponential", "zipf", "pareto_lognormal", "empirical")


class ContinuedStreams(RandomStreams):
    """Random streams that go on where they were left: a name has one generator."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self._generators: dict[str, np.random.Generator] = {}

    def generator(self, name: str) -> np.random.Generator:
        """Return the generator of stream `name`, the same at each call."""
        if name not in self._generators:
            self._generators[name] = super().generator(name)
        return self._generators[name]

    def generator_after(self, name: str, count: int) -> np.random.Generator:
        """Return the generator behind `count` numbers, the same at each call."""
        key = f"{name} {count}"
        if key not in self._generators:
            self._generators[key] = super().generator_after(name, count)
        return self._generators[key]


def chunked(section, seed: int) -> Workload:
    """Return the requests of an experiment, to be drawn in chunks.

    `workload.load.load` draws the same at once.

    section : simulator.config.experiment.Workload, of type "synthetic" and preset "none".

    Raises
    ------
    InputErrors
        No request, or too many; a rate that ends before the last.
    """
    given, streams = section.parameters, ContinuedStreams(seed)
    source = registry.load("workload", section.type)(given)
    is_loop = section.load.mode == "concurrency"
    if is_loop:
        source.refuse_times()
    running = None if is_loop else source.timing.running(source.preset.gaps(streams), streams)
    num_requests = given.num_requests if is_loop else _number(source, seed)

    def draw_part(first: int, count: int) -> Workload:
        drawn = source.preset.draw_part(streams, first, count, num_requests)
        arrival_ns = np.zeros(count, np.int64) if is_loop else in_ns(running.next_s(count), None, given.time_scale)
        built = build_workload(Columns(
            arrival_ns, drawn.prompt_tokens, drawn.output_tokens, prompts=drawn.prompts,
            request_ids=np.arange(first, first + count)))
        built.demands["tie_rank"] += first
        if is_loop:                                     # a slot sets it
            built.requests["arrival_ns"] = records.NEVER_NS
        return built

    lengths = given.parameters
    shared, longest = lengths.system_prompts, _longest(lengths.prompt_tokens) + max(_longest(lengths.output_tokens), 1)
    rows = chunks.RequestChunks(num_requests, draw_part, longest + (shared.num_tokens if shared else 0),
                                chunks.CHUNK_ROWS, shares_text=shared is not None)
    if is_loop:
        rows.loop = loop_of(rows, section.load, given.ends_s, streams)
    return rows.workload()


def _number(source, seed: int) -> int:
    """Return the number of requests; where it depends on arrivals, these are drawn once for it."""
    given, streams = source.parameters, ContinuedStreams(seed)
    asked, duration_s = given.num_requests, math.inf if given.duration_s is None else given.duration_s
    if given.rate is None and math.isinf(duration_s):
        return asked
    found = source.timing.running(source.preset.gaps(streams), streams).count_until(
        duration_s, MAX_REQUESTS + 1 if asked is None else asked)
    if asked is None:
        check_number(found, f"{duration_s:g} s are")
    elif found < asked and math.isinf(duration_s):
        raise InputErrors([KeyFault(f"workload.num_requests: [workload.rate] ends after {found} requests, expected "
                                    f"{asked}; give duration_s or fewer")])
    if not found:
        in_ns(np.empty(0), given.duration_s)            # refuses it
    return found


def _longest(choice: LengthChoice) -> int:
    """Return a bound of the lengths of a distribution, in tokens."""
    given = choice.parameters
    fixed = [each for each in (getattr(given, "tokens", None), getattr(given, "value", None)) if each is not None]
    values = fixed or getattr(given, "values", ())
    return min(max(max(values), given.min), given.max) if values else given.max
