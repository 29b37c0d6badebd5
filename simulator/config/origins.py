"""The source of each value of a resolved experiment: file, --set, a rule of the engine, or a default."""
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import tomli

from simulator.config.layers import Layers, Path

WIDTH = 80
DEFAULT = "default"
HEADER, KEY = re.compile(r"^\[+(.+?)\]+$"), re.compile(r"^([^\s#\[].*?) = ")


class Origins(NamedTuple):
    """Where the values of an experiment come from.

    given : path of a key in the merged table -> its source. rules : path of a filled key -> rule of the engine.
    of_checkpoint : path of a key without a value -> the checkpoint's value, which the run takes.
    """

    given: Mapping[Path, str]
    rules: Mapping[Path, str]
    of_checkpoint: Mapping[Path, Any]

    def of(self, path: Path) -> str:
        """Return the source of a value, in words."""
        if path in self.rules:
            return self.rules[path]
        inherited = (path[2:],) if path[:1] == ("pools",) else ()       # from the table of the experiment
        for keys in (path, *inherited):
            for end in range(len(keys), 0, -1):
                if keys[:end] in self.given:
                    return self.given[keys[:end]]
        return DEFAULT


def given_in(layers: Layers) -> dict[Path, str]:
    """Return the sources of all keys that a merged table gives.

    The file of an experiment is named "file", another by its name.
    """
    return {path: _said(layers, path) for path in _leaves(layers.data, ())}


def _said(layers: Layers, path: Path) -> str:
    label = layers.source_of(path).label
    return "file" if label == layers.main.label else os.path.basename(label) or label


def _leaves(value: Any, path: Path) -> Iterator[Path]:
    """Yield the path of each value that is no table, and of none of its parts."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _leaves(each, (*path, name))
    elif isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        for number, each in enumerate(value):
            yield from _leaves(each, (*path, number))
    else:
        yield path


def with_comments(text: str, comment_of: Callable[[Path], str], of_checkpoint: Mapping[Path, Any]) -> str:
    """Return TOML, as tomli_w writes it, with a comment on each key.

    A comment that makes a line too long is placed above it. A key that stays the checkpoint's is itself a comment.
    """
    counts: dict[str, int] = {}
    table: Path = ()
    lines = []
    for line in text.splitlines():
        if header := HEADER.match(line):
            table = _table(header[1], line.startswith("[["), counts)
            lines += [line, *(f"# {path[-1]} = {value}: checkpoint" for path, value in of_checkpoint.items()
                              if path[:-1] == table)]
            continue
        if key := KEY.match(line):
            comment = comment_of((*table, *_keys(key[1])))
            if len(line) + 4 + len(comment) > WIDTH:
                lines += textwrap.wrap(comment, WIDTH, initial_indent="# ", subsequent_indent="# ")
            else:
                line += f"  # {comment}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _table(header: str, is_list: bool, counts: dict[str, int]) -> Path:
    """Return the path of a table, with the number of each list on the way.

    counts : headers of lists -> tables so far.
    """
    if is_list:
        counts[header] = counts.get(header, -1) + 1
        for inner in [name for name in counts if name.startswith(f"{header}.")]:
            del counts[inner]
    path: Path = ()
    names = _keys(header)
    for end in range(1, len(names) + 1):
        path = (*path, names[end - 1])
        number = next((count for name, count in counts.items() if _keys(name) == names[:end]), None)
        path = path if number is None else (*path, number)
    return path


def _keys(dotted: str) -> tuple[str, ...]:
    """Return the names of a dotted key of TOML."""
    names, table = [], tomli.loads(f"{dotted} = 0")
    while isinstance(table, dict):
        (name, table), = table.items()
        names.append(name)
    return tuple(names)
