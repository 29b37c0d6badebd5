"""Latency models with perturbed operator times, from the errors that latency backends know.

Each operator of a deployment has one error, shared by all pools with this deployment, for the whole run; errors of
different operators, and of different deployments, are independent.
"""
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from simulator.assembly.latency import errors_of_made
from simulator.core.random_streams import RandomStreams
from simulator.latency.overheads.attribution import Attribution
from simulator.latency.readings import Made, Readings
from simulator.latency.uncertainty.draws import positions
from simulator.latency.uncertainty.spread import OperatorError

AS_IT_IS, NOTHING, BEYOND_ALONE = (1.0, 1.0), (0.0, 0.0), (0.0, 1.0)


class Deployed:
    """The operators of one deployment: their errors, and their times.

    Attributes
    ----------
    asked : the arguments from which its models are made, as in `Made`.
    errors : operator -> OperatorError.
    tables : table -> file, version, sha256, measured.
    """

    def __init__(self, made: Made):
        self.asked = made.asked
        self.errors, self.tables = errors_of_made(made)
        self._watched: list[Attribution] = []

    def watch(self, made: Made) -> Attribution:
        """Return the model with an additional model of each operator alone."""
        parts = [((name, part), self._alone(made, name, factors)) for name, error in self.errors.items()
                 for part, factors in (("all", AS_IT_IS), ("beyond", BEYOND_ALONE))
                 if part == "all" or (np.any(error.is_outside) and not error.is_beyond)]
        self._watched.append(Attribution(made.model, parts))
        return self._watched[-1]

    def times_ns(self) -> dict[str, tuple[float, float]]:
        """Return the total time of each operator, and its part outside the measured range."""
        found: dict[tuple, float] = {}
        for each in self._watched:
            for part, ns in each.times_ns().items():
                found[part] = found.get(part, 0.0) + ns
        return {name: (found[name, "all"], found[name, "all"] if error.is_beyond else found.get((name, "beyond"), 0.0))
                for name, error in self.errors.items()}

    def _alone(self, made: Made, name: str, factors: tuple[float, float]):
        """Return a model in which all other operators take no time."""
        return _varied(made, self.errors, dict.fromkeys(self.errors, NOTHING) | {name: factors})


class Watching(Readings):
    """Readings for a run that records operator times.

    deployed : the deployments found, in the order in which models were made.
    """

    def __init__(self):
        super().__init__()
        self.deployed: list[Deployed] = []

    def around(self, made: Made) -> Attribution:
        """Return the model with recording of operator times."""
        known = next((each for each in self.deployed if each.asked == made.asked), None)
        if known is None:
            known = Deployed(made)
            self.deployed.append(known)
        return known.watch(made)


class Factors(NamedTuple):
    """Factors on the operator times of one deployment.

    by_operator : factor within the measured range, and outside it.
    """

    asked: tuple
    errors: dict[str, OperatorError]
    by_operator: dict[str, tuple[float, float]]


class Varied(Readings):
    """Readings for a run with perturbed operator times.

    Parameters
    ----------
    read : Readings
        Files already read.
    factors : of each deployment.
    """

    def __init__(self, read: Readings, factors: Iterable[Factors]):
        super().__init__()
        self._read, self._factors = read, list(factors)

    def of(self, asked, read):
        """Return data that was read before, or read it now."""
        return self._read.of(asked, read)

    def around(self, made: Made):
        """Return the model with factors on its operator times."""
        mine = next(each for each in self._factors if each.asked == made.asked)
        return _varied(made, mine.errors, mine.by_operator)


def draws(deployed: Iterable[Deployed], seed: int, num_replications: int) -> list[list[Factors]]:
    """Return the factors of each replication and deployment."""
    streams, found = RandomStreams(seed), [[] for _ in range(num_replications)]
    for number, each in enumerate(deployed):
        places = {name: positions(streams, f"{number} {name}", num_replications)
                  for name, error in each.errors.items() if error.inside or error.outside}
        for i, factors in enumerate(found):
            factors.append(Factors(each.asked, each.errors, {
                name: _factors(each.errors[name], places[name][i]) for name in places}))
    return found


def _factors(error: OperatorError, position: float) -> tuple[float, float]:
    """Return the factors at one quantile of both distributions: errors within and outside the range are correlated."""
    inside, beyond = error.inside or error.outside, error.beyond
    return inside.factor(position), beyond.factor(position)


def _varied(made: Made, errors: dict[str, OperatorError], factors: dict[str, tuple[float, float]]):
    return made.make(made.backend.varied(made.given, errors, factors))
