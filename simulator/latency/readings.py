"""Content of files that latency backends read, cached for later runs, e.g. of a comparison."""
from collections.abc import Callable
from typing import Any, NamedTuple


class Made(NamedTuple):
    """A latency model, and the arguments that it was made from.

    backend : class of the model.
    asked : (name of the backend, parameters, [latency.collective], deployment).
    given : its other arguments by name.
    make : returns another model, given other such arguments.
    """

    backend: type
    asked: tuple
    given: dict[str, Any]
    model: Any
    make: Callable[[dict[str, Any]], Any]


class Readings:
    """Cache of read data by its request.

    Models share the data and must not write to it. The cache can be sent to another process. Later changes of the
    files are not noticed.
    """

    def __init__(self):
        self._kept: list[tuple[Any, Any]] = []      # compared one by one: parameters may be unhashable

    def of(self, asked: Any, read: Callable[[], Any]) -> Any:
        """Return the result of `read`, cached by `asked`."""
        for known, found in self._kept:
            if known == asked:
                return found
        self._kept.append((asked, read()))
        return self._kept[-1][1]

    def around(self, made: Made) -> Any:
        """Return the model to use: here, the one that was made."""
        return made.model
