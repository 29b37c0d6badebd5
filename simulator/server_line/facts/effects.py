"""Effects of flags that set no key of an experiment: engines/effects.toml."""
import re
from functools import cache

import tomli

from simulator.domain.facts import shipped

UNKNOWN = "its effect is not known here"


@cache
def _table() -> dict:
    return tomli.loads((shipped("engines") / "effects.toml").read_text(encoding="utf-8"))


def effect_of(flag: str) -> str | None:
    """Return the likely effect of a flag on time and capacity; None: none."""
    if any(re.fullmatch(pattern, flag) for pattern in _table()["none"]):
        return None
    return next((text for pattern, text in _table()["effects"].items() if re.fullmatch(pattern, flag)), UNKNOWN)
