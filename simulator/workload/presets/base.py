"""What a preset answers: how long the requests are, what they share, and how its tool sends them."""
from abc import ABC, abstractmethod
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from simulator.core.random_streams import RandomStreams
from simulator.domain.load import Load, Measure, Warmup
from simulator.workload.columns import Prompts

# What the clients of benchmark tools take from an answer to the next request, at least: more than nothing, so that it
# misses the iteration that begins in that instant, and less than anything else lasts. See README.md for why.
CLIENT_DELAY_S = 1e-6


class Drawn(NamedTuple):
    """Requests without their times; arrays are int64 (n,).

    prompts : None: nothing is shared.
    notes : what was left out or replaced, a sentence each.
    timeout_ns : the client gives up so long after arrival, limits.MISSING: never; None: nobody does.
    """

    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    prompts: Prompts | None = None
    notes: tuple[str, ...] = ()
    timeout_ns: np.ndarray | None = None


class Bounds(NamedTuple):
    """So many requests, and none at or after a time; None: [workload] does not say."""

    num_requests: int | None
    duration_s: float | None


class PresetParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What presets may say of the rest of [workload].

    They fill in keys that the file leaves out; where it says otherwise, it is refused (simulator.config.reader).
    """

    @property
    def fixed_num_requests(self) -> int | None:
        """How many requests the tool sends; None: as many as one asks for."""
        return None

    @property
    def says_when(self) -> str | None:
        """What it does instead of reading [workload.arrival]; None: it reads it."""
        return None

    @property
    def requests_per_s(self) -> float | None:
        """How many requests come in a second of a duration; None: nobody knows before."""
        return None

    def check(self, bounds: Bounds) -> None:
        """Raise ValueError for bounds that the tool does not know."""

    def fill_load(self, given: Load, bounds: Bounds) -> Load:
        """Return [workload.load] with what the tool does."""
        waits = given.mode != "timestamps" or given.max_in_flight
        return replace(given, client_delay_s=CLIENT_DELAY_S) if given.client_delay_s is None and waits else given

    def fill_measure(self, given: Measure, bounds: Bounds) -> Measure:
        """Return [workload.measure] with what the tool leaves out."""
        return given

    def fill_warmup(self, given: Warmup, bounds: Bounds) -> Warmup:
        """Return [workload.warmup] with what the tool sends before."""
        return given


def only(given: Load, **keys) -> Load:
    """Return a load of which a tool says all but `client_delay_s` and `grace_s`."""
    delay_s = CLIENT_DELAY_S if given.client_delay_s is None else given.client_delay_s
    return Load(**{"client_delay_s": delay_s, "grace_s": given.grace_s} | keys)


class Preset(ABC):
    """A sort of requests, built as `Preset(parameters)`.

    draws_all_at_once : a request depends on how many there are, so they have to be counted before.
    """

    draws_all_at_once = True

    def gaps(self, streams: RandomStreams):
        """Return what draws the gaps between arrivals."""
        return streams.generator("arrivals")

    def arrivals_s(self, streams: RandomStreams, bounds: Bounds) -> np.ndarray:
        """Return ascending arrivals; asked where the parameters have `says_when`."""
        raise NotImplementedError

    @abstractmethod
    def draw(self, streams: RandomStreams, count: int) -> Drawn:
        """Return the requests, `count` of them, or fewer where a note says why."""
