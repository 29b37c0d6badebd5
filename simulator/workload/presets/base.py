"""The interface of presets: lengths of requests, their shared parts, and how their tool sends them."""
from abc import ABC, abstractmethod
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from simulator.core.random_streams import RandomStreams
from simulator.domain.load import Load, Measure, Warmup
from simulator.workload.columns import Prompts

# Default reaction time of benchmark tools' clients: more than nothing, so that the next request misses the iteration
# that begins at the end of the answer, and less than all other durations. See README.md for the reason.
CLIENT_DELAY_S = 1e-6


class Drawn(NamedTuple):
    """Requests without their times; arrays are int64 (n,).

    prompts : None: nothing is shared.
    notes : data that was left out or replaced, a sentence each.
    timeout_ns : time after arrival at which the client gives up, limits.MISSING: never; None: no client does.
    """

    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    prompts: Prompts | None = None
    notes: tuple[str, ...] = ()
    timeout_ns: np.ndarray | None = None


class Bounds(NamedTuple):
    """The number of requests, and the end of arrivals; None: not given in [workload]."""

    num_requests: int | None
    duration_s: float | None


class PresetParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values of a preset for other keys of [workload].

    They fill in keys that the file leaves out; other values in the file are refused (simulator.config.reader).
    """

    @property
    def fixed_num_requests(self) -> int | None:
        """The number of requests that the tool sends; None: any number."""
        return None

    @property
    def says_when(self) -> str | None:
        """A text on the keys that replace [workload.arrival]; None: it is read."""
        return None

    @property
    def requests_per_s(self) -> float | None:
        """The mean number of arrivals per second; None: not known before the run."""
        return None

    def check(self, bounds: Bounds) -> None:
        """Raise ValueError for bounds that the tool does not support."""

    def fill_load(self, given: Load, bounds: Bounds) -> Load:
        """Return [workload.load] with the tool's values."""
        waits = given.mode != "timestamps" or given.max_in_flight
        return replace(given, client_delay_s=CLIENT_DELAY_S) if given.client_delay_s is None and waits else given

    def fill_measure(self, given: Measure, bounds: Bounds) -> Measure:
        """Return [workload.measure] with the requests that the tool leaves out."""
        return given

    def fill_warmup(self, given: Warmup, bounds: Bounds) -> Warmup:
        """Return [workload.warmup] with the tool's warm-up requests."""
        return given


def only(given: Load, **keys) -> Load:
    """Return a load with all keys set by a tool but `client_delay_s` and `grace_s`."""
    delay_s = CLIENT_DELAY_S if given.client_delay_s is None else given.client_delay_s
    return Load(**{"client_delay_s": delay_s, "grace_s": given.grace_s} | keys)


class Preset(ABC):
    """A kind of requests, built as `Preset(parameters)`.

    draws_all_at_once : a request depends on the number of requests, which must be known before.
    """

    draws_all_at_once = True

    def gaps(self, streams: RandomStreams):
        """Return the random generator for gaps between arrivals."""
        return streams.generator("arrivals")

    def arrivals_s(self, streams: RandomStreams, bounds: Bounds) -> np.ndarray:
        """Return ascending arrivals; called only if the parameters have `says_when`."""
        raise NotImplementedError

    @abstractmethod
    def draw(self, streams: RandomStreams, count: int) -> Drawn:
        """Return `count` requests, or fewer, with a note."""
