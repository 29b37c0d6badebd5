"""Rules of a contract, and the error that lists the broken ones."""
import inspect
import traceback
from collections.abc import Callable, Iterable
from typing import Any


def verify(name: str, rules: Iterable[Callable[..., None]], *subject: Any) -> None:
    """Call each rule with a subject; a broken rule raises an exception.

    Raises
    ------
    AssertionError
        One line for each broken rule: the rule, which is its docstring, and the observation.
    """
    broken = []
    for rule in rules:
        try:
            rule(*subject)
        except Exception as error:      # a class under test may raise anything
            broken.append(f"- {inspect.getdoc(rule)}\n  {_observed(error)}")
    if broken:
        raise AssertionError(f"{name} breaks {len(broken)} rule{'s' * (len(broken) > 1)} of its contract:\n"
                             + "\n".join(broken))


def expect(holds: bool, observed: str) -> None:
    """Raise AssertionError unless a condition holds; `assert` vanishes under -O."""
    if not holds:
        raise AssertionError(observed)


def _observed(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, AssertionError):
        return text
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text} ({place.filename}, line {place.lineno})"
