"""The interface of changing rates."""
from abc import ABC, abstractmethod

import numpy as np


class Course(ABC):
    """One course of a rate over time.

    Lambda(t) is its integral from 0 to t, the number of requests due until t.
    is_random : it is drawn, as far as calls need it.
    """

    is_random = False

    @abstractmethod
    def requests_until(self, time_s: float) -> float:
        """Return Lambda(time_s); for inf the number of all requests."""

    @abstractmethod
    def times_s(self, due: np.ndarray) -> np.ndarray:
        """Return the smallest times at which Lambda reaches `due`, ascending; inf: never."""


class Rate:
    """A [workload.rate]: a `Changing` rate, or a `Placement`.

    It is built as `Rate(parameters)`.
    """


class Changing(Rate, ABC):
    """A rate that changes; a process draws the gaps.

    mean_per_s : requests per second in the long run, or as the rate's reference page defines it.
    """

    mean_per_s: float

    @abstractmethod
    def course(self, generator: np.random.Generator) -> Course:
        """Return the course of one run; it draws only if the course is random."""


class Placement(Rate, ABC):
    """Places requests itself, without a process that draws gaps."""

    @abstractmethod
    def arrivals_s(self, generator: np.random.Generator) -> np.ndarray:
        """Return when all requests arrive, ascending."""
