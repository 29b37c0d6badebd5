"""Paths among the values of a study: relative to the study file when read, absolute in the stored study.

The study is stored in its directory, and read again from there.
"""
import os
from collections.abc import Callable, Mapping
from typing import Any

from simulator.config.fields import extra_of
from simulator.config.keys import named
from simulator.config.layers import Path, Source

POINTS = ("points", "exclude", "only")


def anchored(given: Mapping[str, Any], source_of: Callable[[Path], Source]) -> dict[str, Any]:
    """Return [study] with absolute paths among the values of its axes and points.

    Parameters
    ----------
    source_of : maps the path of a key to the file that sets it.
    """
    made = dict(given)
    if isinstance(axes := given.get("axes"), Mapping):
        made["axes"] = {key: _values(key, each, source_of(("study", "axes", key)).folder) for key, each in axes.items()}
    for name in POINTS:
        if isinstance(points := given.get(name), list):
            folder = source_of(("study", name)).folder
            made[name] = [_value("", point, folder) for point in points]
    return made


def _values(key: str, values: Any, folder: str) -> Any:
    return [_value(key, each, folder) for each in values] if isinstance(values, list) else values


def _value(key: str, value: Any, folder: str) -> Any:
    """Return the value of a key, or of a table of keys."""
    if isinstance(value, Mapping):
        return {name: _value(f"{key}.{name}" if key else name, each, folder) for name, each in value.items()}
    if not isinstance(value, str) or not ({os.sep, "."} & set(value)) or os.path.isabs(value):
        return value
    extras = [extra_of(each.field.hint) for each in named(key)]
    found = os.path.abspath(os.path.join(folder, os.path.expanduser(value)))
    is_own_file = any("facts" in extra for extra in extras) and os.path.exists(found)     # or a repository on the hub
    return found if is_own_file or any(extra.get("path") for extra in extras) else value
