"""TOML texts with other values: comments and order of the lines stay."""
import re
from collections.abc import Iterator, Mapping
from typing import Any

import tomli
import tomli_w

from simulator.config.layers import add_overrides, parse_toml, read_text

HEADER = re.compile(r"^\s*\[([^\[\]]+)\]\s*(?:#.*)?$")
LIST_HEADER = re.compile(r"^\s*\[\[")
ASSIGNMENT = re.compile(r"^\s*([\w.\"-]+)\s*=")

Path = tuple[str, ...]


def with_values(text: str, file: str, values: Mapping[str, Any]) -> str:
    """Return the text of an experiment with other values.

    Keys that belong to a class which is chosen no longer are left out.

    Parameters
    ----------
    file : name of the text in messages.
    values : by dotted key; None: the key is left out.

    Raises
    ------
    InputErrors
        The text is no TOML.
    """
    before = parse_toml(text, file)
    layers = read_text(tomli_w.dumps({key: each for key, each in before.items() if key != "extends"}), file)
    add_overrides(layers, {key: each for key, each in values.items() if each is not None}, file)
    after = layers.data | {key: before[key] for key in ("extends",) if key in before}
    for key in (key for key, each in values.items() if each is None):
        _drop(after, key.split("."))
    after = _pruned(after)
    old, new = dict(_leaves(before)), dict(_leaves(after))
    lines = text.splitlines()
    for path in old.keys() - new.keys():
        _replace(lines, path, None)
    for path in [path for path in new if path not in old or old[path] != new[path]]:
        if not _replace(lines, path, new[path]):
            _insert(lines, path, new[path])
    lines = _without_empty(lines, after)
    made = "\n".join(lines) + "\n"
    return made if _means(made, after) else tomli_w.dumps(after)


def _means(text: str, table: dict) -> bool:
    try:
        return tomli.loads(text) == table
    except ValueError:
        return False


def _drop(table: dict, path: list[str]) -> None:
    for part in path[:-1]:
        table = table.get(part)
        if not isinstance(table, dict):
            return
    table.pop(path[-1], None)


def _pruned(table: dict) -> dict:
    """Return a table without tables that are empty."""
    found = {key: _pruned(each) if isinstance(each, dict) else each for key, each in table.items()}
    return {key: each for key, each in found.items() if each != {}}


def _without_empty(lines: list[str], table: dict) -> list[str]:
    """Return lines without headers of tables that are left out, and the blanks before."""
    kept, headers = list(lines), [(number, path) for number, path, key in _places(lines) if key is None]
    for number, path in reversed(headers):
        if _at(table, path) is None:
            del kept[number]
            while number and number <= len(kept) and not kept[number - 1].strip():
                number -= 1
                del kept[number]
    return kept


def _at(table: Any, path: Path) -> Any:
    for part in path:
        table = table.get(part) if isinstance(table, dict) else None
    return table


def _leaves(table: Mapping, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _places(lines: list[str]) -> Iterator[tuple[int, Path, Path | None]]:
    """Yield number, table and key of each line; None: the line assigns no key."""
    table: Path = ()
    for number, line in enumerate(lines):
        if LIST_HEADER.match(line):
            table = ("[[",)                     # lines of lists of tables are left alone
        elif found := HEADER.match(line):
            table = _path(found[1])
            yield number, table, None
        elif found := ASSIGNMENT.match(line):
            yield number, table, _path(found[1])


def _path(text: str) -> Path:
    return tuple(part.strip().strip('"') for part in text.split("."))


def _replace(lines: list[str], path: Path, value: Any) -> bool:
    """Replace the value of a key in its line, None: remove it; return if there is one."""
    for number, table, key in _places(lines):
        if key is not None and (*table, *key) == path:
            if value is None:
                del lines[number]
                return True
            begin = lines[number].index("=") + 1
            rest = lines[number][begin:]
            lines[number] = f"{lines[number][:begin]} {_written(value)}{_comment(rest)}"
            return True
    return False


def _written(value: Any) -> str:
    """Return a value as TOML."""
    return tomli_w.dumps({"value": value}).partition(" = ")[2].rstrip()


def _comment(rest: str) -> str:
    """Return the comment behind a value, with the blanks before it; "": there is none."""
    for place in (found.start() for found in re.finditer(r"\s*#", rest)):
        try:
            tomli.loads(f"value = {rest[:place]}")
        except ValueError:
            continue
        return rest[place:]
    return ""


def _insert(lines: list[str], path: Path, value: Any) -> None:
    """Add a line at the end of its table; a new table comes last."""
    assignment = f"{path[-1]} = {_written(value)}"
    own = [number for number, table, key in _places(lines) if table == path[:-1] and (key is not None or path[:-1])]
    if own:
        lines.insert(own[-1] + 1, assignment)
    elif len(path) == 1:
        lines.insert(0, assignment)
    else:
        lines += [""] * bool(lines and lines[-1].strip()) + [f"[{'.'.join(path[:-1])}]", assignment]
