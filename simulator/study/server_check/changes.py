"""A change of an experiment, or of its demand, that is simulated."""
import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class Change(NamedTuple):
    """What differs from the experiment.

    text : in a line of the answer. keys : values by dotted key. pace : all iterations take this many times as long.
    demand, prompts, answers : factors of the arrivals that are planned, and of the lengths of prompts and answers.
    """

    text: str
    keys: Mapping[str, Any] = {}
    pace: float = 1.0
    demand: float = 1.0
    prompts: float = 1.0
    answers: float = 1.0

    def overrides(self) -> list[str]:
        """Return the keys as texts for `load_experiment`."""
        return [f"{key}={json.dumps(value)}" for key, value in self.keys.items()]


NOTHING = Change("as the experiment says")
