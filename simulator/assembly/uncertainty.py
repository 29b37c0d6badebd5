"""From what latency backends know of their errors to models whose operators take more or less time.

Operators of one deployment have one error each, the same for all pools that have this deployment, and for the whole
run; those of different operators, and of different deployments, are independent.
"""
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from simulator.assembly.latency import errors_of_made
from simulator.core.random_streams import RandomStreams
from simulator.latency.around.attribution import Attribution
from simulator.latency.readings import Made, Readings
from simulator.latency.uncertainty.draws import positions
from simulator.latency.uncertainty.spread import OperatorError

AS_IT_IS, NOTHING, BEYOND_ALONE = (1.0, 1.0), (0.0, 0.0), (0.0, 1.0)


class Deployed:
    """The operators of one deployment: their errors, and what they take.

    Attributes
    ----------
    asked : what its models are made from, as `Made` has it.
    errors : operator -> OperatorError.
    tables : table -> file, version, sha256, measured.
    """

    def __init__(self, made: Made):
        self.asked = made.asked
        self.errors, self.tables = errors_of_made(made)
        self._watched: list[Attribution] = []

    def watch(self, made: Made) -> Attribution:
        """Return the model with those of its operators beside it, one and one alone."""
        parts = [((name, part), self._alone(made, name, factors)) for name, error in self.errors.items()
                 for part, factors in (("all", AS_IT_IS), ("beyond", BEYOND_ALONE))
                 if part == "all" or (np.any(error.is_outside) and not error.is_beyond)]
        self._watched.append(Attribution(made.model, parts))
        return self._watched[-1]

    def times_ns(self) -> dict[str, tuple[float, float]]:
        """Return what each operator took in all, and of it beyond what was measured."""
        found: dict[tuple, float] = {}
        for each in self._watched:
            for part, ns in each.times_ns().items():
                found[part] = found.get(part, 0.0) + ns
        return {name: (found[name, "all"], found[name, "all"] if error.is_beyond else found.get((name, "beyond"), 0.0))
                for name, error in self.errors.items()}

    def _alone(self, made: Made, name: str, factors: tuple[float, float]):
        """Return a model in which all other operators take nothing."""
        return _varied(made, self.errors, dict.fromkeys(self.errors, NOTHING) | {name: factors})


class Watching(Readings):
    """Readings for a run whose operators are watched.

    deployed : what was found, in the order in which models were made.
    """

    def __init__(self):
        super().__init__()
        self.deployed: list[Deployed] = []

    def around(self, made: Made) -> Attribution:
        """Return the model, watched."""
        known = next((each for each in self.deployed if each.asked == made.asked), None)
        if known is None:
            known = Deployed(made)
            self.deployed.append(known)
        return known.watch(made)


class Factors(NamedTuple):
    """What the times of the operators of one deployment are multiplied with.

    by_operator : within what was measured, and beyond.
    """

    asked: tuple
    errors: dict[str, OperatorError]
    by_operator: dict[str, tuple[float, float]]


class Varied(Readings):
    """Readings for a run whose operators take more or less time.

    Parameters
    ----------
    read : Readings
        What was read before.
    factors : of each deployment.
    """

    def __init__(self, read: Readings, factors: Iterable[Factors]):
        super().__init__()
        self._read, self._factors = read, list(factors)

    def of(self, asked, read):
        """Return what was read before, or is read now."""
        return self._read.of(asked, read)

    def around(self, made: Made):
        """Return the model with its operators multiplied."""
        mine = next(each for each in self._factors if each.asked == made.asked)
        return _varied(made, mine.errors, mine.by_operator)


def draws(deployed: Iterable[Deployed], seed: int, num_replications: int) -> list[list[Factors]]:
    """Return the factors of each replication, of each deployment."""
    streams, found = RandomStreams(seed), [[] for _ in range(num_replications)]
    for number, each in enumerate(deployed):
        places = {name: positions(streams, f"{number} {name}", num_replications)
                  for name, error in each.errors.items() if error.inside or error.outside}
        for i, factors in enumerate(found):
            factors.append(Factors(each.asked, each.errors, {
                name: _factors(each.errors[name], places[name][i]) for name in places}))
    return found


def _factors(error: OperatorError, position: float) -> tuple[float, float]:
    """Return the factors at one place of both distributions: what is too long within is too long beyond, too."""
    inside, beyond = error.inside or error.outside, error.beyond
    return inside.factor(position), beyond.factor(position)


def _varied(made: Made, errors: dict[str, OperatorError], factors: dict[str, tuple[float, float]]):
    return made.make(made.backend.varied(made.given, errors, factors))
