"""What a preset answers: how long the requests are, what they share, and how its tool sends them."""
from abc import ABC, abstractmethod
from typing import NamedTuple

import msgspec
import numpy as np

from simulator.core.random_streams import RandomStreams
from simulator.domain.load import Load
from simulator.workload.columns import Prompts


class Drawn(NamedTuple):
    """Requests without their times; arrays are int64 (n,).

    prompts : None: nothing is shared.
    notes : what was left out or replaced, a sentence each.
    """

    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    prompts: Prompts | None = None
    notes: tuple[str, ...] = ()


class PresetParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What presets may say of the rest of [workload]."""

    @property
    def fixed_num_requests(self) -> int | None:
        """How many requests the tool sends; None: as many as one asks for."""
        return None

    @property
    def warmup_copies_of_first(self) -> int:
        """How many copies of the first request the tool sends before it measures."""
        return 0

    def fill_load(self, given: Load) -> Load:
        """Return [workload.load] with what the tool does; refuse what contradicts it."""
        return given


class Preset(ABC):
    """A sort of requests, built as `Preset(parameters)`.

    draws_all_at_once : a request depends on how many there are, so they have to be counted before.
    """

    draws_all_at_once = True

    def gaps(self, streams: RandomStreams):
        """Return what draws the gaps between arrivals."""
        return streams.generator("arrivals")

    @abstractmethod
    def draw(self, streams: RandomStreams, count: int) -> Drawn:
        """Return the requests, `count` of them, or fewer where a note says why."""
