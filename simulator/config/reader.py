"""Turn the plain data of a TOML file into typed Structs, and find every fault on the way.

msgspec stops at the first fault, so tables are walked here, key by key, and msgspec converts and checks the leaves.
"""
import math
import os
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin

import msgspec

from simulator import registry
from simulator.config.fields import (
    Field,
    alternatives,
    bare,
    element_of,
    extra_of,
    is_struct,
    named_element_of,
    node_of,
    table_of,
)
from simulator.config.layers import Path, Source
from simulator.config.words import allowed_in, show, words
from simulator.core.paths import fault_of_name, special
from simulator.domain import facts
from simulator.domain.near_facts import end_of
from simulator.errors import InputErrors, did_you_mean, nearest

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
MISSING = object()      # marks a value that could not be read


class Reader:
    """Reads data into Structs and collects faults; raises no error for them.

    Parameters
    ----------
    source_of : maps the path of a key to the source of its value.

    A Struct with a `filled_by` that is not None fills in keys of its tables when it is made; `filled_by` is the reason.
    It must not change keys that the file gives.
    """

    def __init__(self, source_of: Callable[[Path], Source]):
        self.faults: list[str] = []
        self._source_of = source_of

    def fault(self, path: Path, message: str) -> None:
        """Record a fault of the key at `path`."""
        where = f"{self._source_of(path).label}: {dotted(path)}: " if path else f"{self._source_of(path).label}: "
        self.faults.append(where + message.replace("\n", " "))

    def table(self, struct: type, data: dict, path: Path = (), outer_keys: tuple[str, ...] = (),
              chosen: tuple[str, str] | None = None) -> Any:
        """Read a table into `struct`.

        Parameters
        ----------
        outer_keys : keys of the table that an enclosing Struct has read, for the message about an unknown key.
        chosen : kind and name of the class with the parameters `struct`, for that message; None: there is none.

        Returns
        -------
        The Struct, or `MISSING` if anything in it is wrong.
        """
        values = self.values(struct, data, path, outer_keys, chosen)
        if MISSING in values.values():
            return MISSING
        try:
            made = struct(**values)
        except ValueError as error:     # from __post_init__: a contradiction between fields
            for fault in getattr(error, "faults", (str(error),)):
                self.fault(path, fault)
            return MISSING
        filled_by = getattr(made, "filled_by", None)
        lost = list(_changed(values, made, data, path)) if filled_by else []
        for where, given, final in lost:
            found = "none" if final is None else show(final)
            self.fault(where, f"{filled_by} has {found}, found {show(given)}; leave it out")
        return MISSING if lost else made

    def values(self, struct: type, data: dict, path: Path = (), outer_keys: tuple[str, ...] = (),
               chosen: tuple[str, str] | None = None) -> dict[str, Any]:
        """Read a table as `table` does; return its fields, `MISSING` for a faulty one."""
        table = table_of(struct)
        keys = outer_keys + tuple(field.name for field in table.fields)
        values = {field.name: self._field(field, data, path) for field in table.fields}
        rest = {key: value for key, value in data.items() if key not in keys}
        if table.kind is not None:
            inner, name = self._choose(table.kind, values, path), values[registry.KINDS[table.kind].key]
            values[table.choice] = MISSING if inner is None else self.table(
                inner, rest, path, keys, (table.kind, name))
        else:
            reasons = getattr(struct, "WHY_NOT", {})
            for key in rest:
                why = reasons.get(key)
                hint = "" if chosen is None or nearest(key, keys) else _who_has(key, *chosen)
                self.fault((*path, key), f'expected none with "{chosen[1]}": {why}' if why and chosen else
                           f"unknown key{did_you_mean(key, keys)}{hint}")
        return values

    def _field(self, field: Field, data: dict, path: Path) -> Any:
        here = (*path, field.name)
        if field.name in data:
            if data[field.name] == field.default == "":     # no path, as in the resolved file
                return ""
            return self._value(field.hint, data[field.name], here)
        if not field.required:
            return field.default
        if is_struct(field.hint):       # an absent table is read as an empty one
            return self.table(bare(field.hint), {}, here)
        meaning = f" ({field.description})" if field.description else ""
        self.fault(here, f"missing; expected {allowed_in(field)}{meaning}")
        return MISSING

    def _choose(self, kind: str, values: dict, path: Path) -> type | None:
        key = registry.KINDS[kind].key
        name = values[key]
        if name is MISSING:
            return None
        here = (*path, key)
        try:
            chosen = registry.load(kind, name, ("", str(self._source_of(here).folder)))
        except InputErrors as errors:
            self.fault(here, str(errors))
            return None
        return registry.parameters_of(chosen)

    def _value(self, hint: Any, value: Any, path: Path) -> Any:
        for option in alternatives(hint):
            if isinstance(value, dict) and is_struct(option):
                return self.table(bare(option), value, path)
            if isinstance(value, list) and element_of(option) is not None:
                return self._list(option, value, path)
            if isinstance(value, dict) and named_element_of(option) is not None:
                return self._named(named_element_of(option), extra_of(hint)["facts"], value, path)
        return self._leaf(hint, value, path)

    def _named(self, element: Any, kind: str, data: dict, path: Path) -> Any:
        """Read tables keyed by names of facts, e.g. of accelerators."""
        names = {name: self._name_of_facts(kind, name, (*path, name)) for name in data}
        read = {names[name]: self._value(element, each, (*path, name)) for name, each in data.items()}
        return MISSING if MISSING in read or MISSING in read.values() else read

    def _list(self, option: Any, value: list, path: Path) -> Any:
        read = [self._value(element_of(option), each, (*path, i)) for i, each in enumerate(value)]
        if any(each is MISSING for each in read):
            return MISSING
        node = node_of(option)
        if len(read) < (node.min_length or 0) or (node.max_length is not None and len(read) > node.max_length):
            return self._unexpected(option, value, path)
        return get_origin(bare(option))(read)

    def _leaf(self, hint: Any, value: Any, path: Path) -> Any:
        try:
            read = msgspec.convert(value, hint)
        except (msgspec.ValidationError, OverflowError):
            tables = [get_args(bare(each)) for each in alternatives(hint) if get_origin(bare(each)) is dict]
            if isinstance(value, dict) and tables:      # the fault is one of its values
                found = [self._value(tables[0][1], each, (*path, name)) for name, each in value.items()]
                return MISSING if MISSING in found else self._unexpected(hint, value, path)
            return self._unexpected(hint, value, path)
        if isinstance(read, str) and not _matches(hint, read):
            return self._unexpected(hint, value, path)
        extra = extra_of(hint)
        if isinstance(read, float) and not math.isfinite(read) and not (math.isinf(read) and extra.get("inf")):
            return self._unexpected(hint, value, path, "finite, ")
        if isinstance(read, str) and "facts" in extra:
            return self._name_of_facts(extra["facts"], read, path)
        if isinstance(read, str) and extra.get("path"):
            return self._path(read, path)
        return read

    def _name_of_facts(self, kind: str, name: str, path: Path) -> Any:
        if "/" in name or name.endswith(".toml"):
            return self._hub_id_or_file(kind, name, path)
        if name in facts.names(kind):
            return name
        self.fault(path, f"no {kind} {show(name)} in {facts.FOLDERS[kind]}/{end_of(name, facts.names(kind))}")
        return MISSING

    def _hub_id_or_file(self, kind: str, name: str, path: Path) -> Any:
        found = self._absolute(name, path)
        if found is MISSING or os.path.exists(found):
            return found
        try:
            if known := facts.name_of_hub_id(kind, name):
                return known
            self.fault(path, facts.missing(kind, name, pathlib.Path(found)))
        except InputErrors as error:
            self.fault(path, error.faults[0])
        return MISSING

    def _path(self, name: str, path: Path) -> Any:
        if not name:
            self.fault(path, 'expected the path of a file, found ""')
            return MISSING
        return self._absolute(name, path)

    def _absolute(self, name: str, path: Path) -> Any:
        """Return the absolute path of `name`, relative to the source of the key `path`, or refuse it."""
        found = os.path.abspath(os.path.join(self._source_of(path).folder, os.path.expanduser(name)))
        if (fault := fault_of_name(name)) is not None and "\0" not in name:
            self.fault(path, fault)
            return MISSING
        if kind := special(found):
            self.fault(path, f"expected a file, found {show(name)}, {kind}")
            return MISSING
        return found

    def _unexpected(self, hint: Any, value: Any, path: Path, also: str = "") -> Any:
        message = f"expected {words(hint)}, {also}found {show(value)}"
        choices = [each for option in alternatives(hint) for each in getattr(node_of(option), "values", ())]
        is_near = choices and isinstance(value, str)
        self.fault(path, message + (nearest(value, choices) if is_near else ""))
        return MISSING


def _changed(values: dict, made: msgspec.Struct, data: dict, path: Path) -> Iterator[tuple[Path, Any, Any]]:
    """Yield (path, given, final) of each key of a file that a Struct with `filled_by` has changed.

    Parameters
    ----------
    values : the fields as read. data : the keys of the file; keys that are not in it may be filled in.
    """
    for name in filter(data.__contains__, values):
        given, final, here = values[name], getattr(made, name), (*path, name)
        if isinstance(given, msgspec.Struct) and type(given) is type(final):
            inner = {key: getattr(given, key) for key in given.__struct_fields__}
            yield from _changed(inner, final, data[name], here)
        elif given != final:
            yield here, given, final


def _who_has(key: str, kind: str, name: str) -> str:
    """Return as text which other classes of a kind have a key; empty: none has it."""
    entries, title = registry.KINDS[kind].entries, registry.KINDS[kind].title
    others = [f'"{other}"' for other in sorted(entries) if other != name and any(
        field.encode_name == key
        for field in msgspec.structs.fields(registry.parameters_of(registry.load(kind, other))))]
    if not others:
        return ""
    return f'; {title} "{name}" does not have it, {", ".join(others)} {"do" if others[1:] else "does"}'


def _matches(hint: Any, text: str) -> bool:
    """Return whether a text matches as a whole; msgspec searches, so its `$` also matches before a final newline."""
    patterns = [getattr(node_of(option), "pattern", None) for option in alternatives(hint)]
    return not any(patterns) or any(re.fullmatch(pattern, text) for pattern in patterns if pattern)


def dotted(path: Path) -> str:
    """Write the path of a key as TOML does: engine.max_num_seqs, slices[2], "odd key"."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        name = part if BARE_KEY.fullmatch(part) else msgspec.json.encode(part).decode()
        text += f".{name}" if text else name
    return text
