"""Defaults of a gateway under one name, the key `like` of a router's table."""
from collections.abc import Iterator
from typing import Any

from simulator.config.words import show

# Source of "llm-d-default": llm-d-router ebab6879, pkg/epp/config/loader/defaults.go.
PRESETS = {"llm-d-default": {"policy": "weighted", "profile": "llm-d-router", "snapshot_refresh_interval_s": 0.05}}
FIXED = ("policy",)     # keys that the other keys of the preset need


def unfold(layers) -> list[str]:
    """Replace `like` in tables of routers by its keys, and return faults.

    layers : Layers. Keys of the file win. An unknown name is left to the reader of the table.
    """
    cluster = layers.data.get("cluster")
    return [fault for path, table in _tables(cluster, ("cluster",)) for fault in _unfold(layers, path, table)]


def _tables(table: Any, path: tuple) -> Iterator[tuple[tuple, dict]]:
    """Yield (path, table) of each table with `like`."""
    if not isinstance(table, dict):
        return
    if "like" in table:
        yield path, table
    for key, inner in list(table.items()):
        yield from _tables(inner, (*path, key))


def _unfold(layers, path: tuple, table: dict) -> Iterator[str]:
    name = table["like"]
    if not isinstance(name, str) or name not in PRESETS:
        return
    del table["like"]
    source = layers.source_of((*path, "like")).label
    for key, value in PRESETS[name].items():
        if key in FIXED and table.get(key, value) != value:
            yield (f'{source}: {".".join(path)}.{key}: expected none or {show(value)} with like = {show(name)}, '
                   f"found {show(table[key])}")
        elif key != "profile" or not table.get("scorers"):
            table.setdefault(key, value)
