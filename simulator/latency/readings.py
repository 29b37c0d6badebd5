"""What latency backends read, kept for the runs that follow: those of a comparison mostly read the same."""
from collections.abc import Callable
from typing import Any, NamedTuple


class Made(NamedTuple):
    """A latency model, and what it was made of.

    backend : its class.
    asked : (name of the backend, parameters, [latency.collective], deployment).
    given : its other arguments by name.
    make : returns another one, of other such arguments.
    """

    backend: type
    asked: tuple
    given: dict[str, Any]
    model: Any
    make: Callable[[dict[str, Any]], Any]


class Readings:
    """What was read, by what it was asked for.

    Models share it, and nobody writes to it. It can be sent to another process. What lies in files is read as it was
    when somebody first asked.
    """

    def __init__(self):
        self._kept: list[tuple[Any, Any]] = []      # compared one by one: parameters may hold what has no hash

    def of(self, asked: Any, read: Callable[[], Any]) -> Any:
        """Return what `read` returned when the same was asked for before, or returns now."""
        for known, found in self._kept:
            if known == asked:
                return found
        self._kept.append((asked, read()))
        return self._kept[-1][1]

    def around(self, made: Made) -> Any:
        """Return the model that is to be used: the one that was made."""
        return made.model
