"""What a changing rate is asked."""
from abc import ABC, abstractmethod

import numpy as np


class Course(ABC):
    """One course of a rate over time.

    Lambda(t) is its integral from 0 to t, the requests that are due until then.
    is_random : it is drawn as far as it is asked for.
    """

    is_random = False

    @abstractmethod
    def requests_until(self, time_s: float) -> float:
        """Return Lambda(time_s); inf asks for all that will ever be due."""

    @abstractmethod
    def times_s(self, due: np.ndarray) -> np.ndarray:
        """Return the smallest times at which Lambda reaches `due`, ascending; inf: never."""


class Rate:
    """What a [workload.rate] can be: a `Changing` rate, or a `Placement`.

    It is built as `Rate(parameters)`.
    """


class Changing(Rate, ABC):
    """A rate that changes, at which a process draws.

    mean_per_s : requests per second in the long run, or as the rate's own page says.
    """

    mean_per_s: float

    @abstractmethod
    def course(self, generator: np.random.Generator) -> Course:
        """Return the course of one run; only where that is random it draws."""


class Placement(Rate, ABC):
    """What places requests itself, without a process that draws gaps."""

    @abstractmethod
    def arrivals_s(self, generator: np.random.Generator) -> np.ndarray:
        """Return when all requests arrive, ascending."""
