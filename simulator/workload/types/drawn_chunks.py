"""Drawn requests, chunk by chunk: each property goes on in its own random stream, as if all were drawn at once."""
import numpy as np

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.workload import chunks
from simulator.workload.base import Workload
from simulator.workload.build import build_workload
from simulator.workload.columns import Columns
from simulator.workload.drawing.arrivals import RunningTimes
from simulator.workload.drawing.choices import LengthChoice
from simulator.workload.drawing.timing import in_ns

# Classes with draws that follow each other in one stream: a draw of n numbers and one of m are one of n + m.
PROCESSES = ("poisson", "constant", "gamma", "weibull", "burst")
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


def chunked(section, seed: int) -> Workload:
    """Return the requests of an experiment, to be drawn in chunks.

    `workload.load.load` draws the same at once.

    section : simulator.config.experiment.Workload, of type "synthetic" and preset "none", with num_requests.
    """
    given, streams = section.parameters, ContinuedStreams(seed)
    source = registry.load("workload", section.type)(given)
    running = RunningTimes(source.timing.process, source.preset.gaps(streams))

    def draw_part(first: int, count: int) -> Workload:
        drawn = source.preset.draw(streams, count)
        built = build_workload(Columns(
            in_ns(running.next_s(count), None, given.time_scale), drawn.prompt_tokens, drawn.output_tokens,
            request_ids=np.arange(first, first + count)))
        built.demands["tie_rank"] += first
        return built

    lengths = given.parameters
    longest = _longest(lengths.prompt_tokens) + max(_longest(lengths.output_tokens), 1)
    return chunks.RequestChunks(given.num_requests, draw_part, longest, chunks.CHUNK_ROWS).workload()


def _longest(choice: LengthChoice) -> int:
    """Return a bound of the lengths of a distribution, in tokens."""
    given = choice.parameters
    fixed = [each for each in (getattr(given, "tokens", None), getattr(given, "value", None)) if each is not None]
    values = fixed or getattr(given, "values", ())
    return min(max(max(values), given.min), given.max) if values else given.max
