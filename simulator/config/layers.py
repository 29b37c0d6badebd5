"""Read TOML files and overrides into one plain table that records the source of each value."""
import os
import re
import sys
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import tomli

from simulator.config.choices import forget
from simulator.config.experiment import Experiment
from simulator.config.words import show
from simulator.core.paths import readable
from simulator.errors import InputErrors

Path = tuple[str | int, ...]

MOST_LETTERS = 200  # of the name of an experiment
MAX_DEPTH = 50      # of tables; an experiment has four levels


class Source(NamedTuple):
    """Where a value was written."""

    label: str      # shown in messages: a file name, --set, or overrides
    folder: str     # base folder of its relative paths


class Layers:
    """One table merged from several sources; a later source overrides single keys.

    data : the merged table.
    main : reported as the source of a missing key.
    """

    def __init__(self, main: Source):
        self.data: dict = {}
        self.main = main
        self._sources: dict[Path, Source] = {}
        self._folders = ("",)

    def add(self, data: Mapping, source: Source) -> None:
        """Merge a table over the present one; drop keys of classes chosen no longer."""
        self._folders = ("", source.folder, *self._folders)
        forget(Experiment, self.data, data, self._folders)
        self.merge(data, source)

    def copy(self) -> "Layers":
        """Return a copy, to which further tables can be added."""
        made = Layers(self.main)
        made.data, made._sources, made._folders = deepcopy(self.data), dict(self._sources), self._folders
        return made

    def merge(self, data: Mapping, source: Source) -> None:
        """Merge a table over the present one: tables are merged, other values replaced."""
        self._merge(self.data, data, (), source)

    def name_after(self, file: str | os.PathLike) -> None:
        """Name an experiment without a name after its file.

        Letters that no name may hold become `_`.
        """
        stem = os.path.basename(os.fspath(file)).removesuffix(".toml")
        name = re.sub(r"[^\w.+ -]", "_", stem)[:MOST_LETTERS]
        self.data.setdefault("name", name if re.match(r"\w", name) else f"_{name}"[:MOST_LETTERS])

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders searched for a user's module, the nearest first."""
        return self._folders

    def source_of(self, path: Path) -> Source:
        """Return the source of the value at `path`, or of the nearest table around it."""
        while path:
            if path in self._sources:
                return self._sources[path]
            path = path[:-1]
        return self.main

    def _merge(self, below: dict, above: Mapping, path: Path, source: Source) -> None:
        if len(path) > MAX_DEPTH:
            raise InputErrors([f"{source.label}: nested too deeply"])
        for key, value in above.items():
            here = (*path, key)
            if isinstance(value, Mapping):
                if not isinstance(below.get(key), dict):
                    below[key] = {}
                    self._sources[here] = source
                self._merge(below[key], value, here, source)
            else:                           # pools are completed in place: the caller's list stays as it is
                below[key] = deepcopy(value) if isinstance(value, list) else value
                self._sources[here] = source


def read_layers(file: str | os.PathLike, overrides: Mapping[str, Any] | Iterable[str] | str | None = None,
                label: str = "overrides") -> Layers:
    """Read a TOML file, the files it extends, and overrides.

    Parameters
    ----------
    overrides : `{"engine.max_num_seqs": 64}`, or one or several texts `engine.max_num_seqs=64` as for --set. Paths
        in them are relative to the current folder.
    label : name of the overrides in messages.

    Raises
    ------
    InputErrors
        A file that cannot be read or is no TOML; an override that is no assignment.
    """
    file = os.path.expanduser(os.fspath(file))
    chain = _chain(file)
    layers = Layers(Source(file, os.path.dirname(file)))
    for name, data in reversed(chain):
        data.pop("extends", None)
        layers.add(data, Source(name, os.path.dirname(name)))
    add_overrides(layers, overrides, label)
    return layers


def add_overrides(layers: Layers, overrides: Mapping[str, Any] | Iterable[str] | str | None, label: str) -> None:
    """Merge overrides over the present table; parameters as in `read_layers`.

    Raises
    ------
    InputErrors
        An override that is no assignment.
    """
    source = Source(label, "")
    together = Layers(source)       # one layer: the order of overrides must not decide which class is chosen
    for data in _tables_of(overrides, label):
        together.merge(data, source)
    layers.add(together.data, source)


def read_toml(file: str) -> dict:
    """Read one TOML file; a fault is reported with file, line and column."""
    try:
        with open(readable(file), "rb") as stream:
            text = stream.read().decode("utf-8-sig")
    except IsADirectoryError:
        results = os.path.join(file, "resolved.toml")
        has = f"; the experiment of these results is {results}" if os.path.isfile(results) else ""
        raise InputErrors([f"{file}: a folder, expected a TOML file{has}"]) from None
    except OSError as error:
        raise InputErrors([f"{file}: {error.strerror or error}"]) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputErrors([f"{file}:{line}: not UTF-8: byte 0x{error.object[error.start]:02x}"]) from None
    return parse_toml(text, file)


def parse_toml(text: str, file: str) -> dict:
    """Return the table of a TOML text; faults name `file`, line and column."""
    try:
        return tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        raise InputErrors([f"{file}:{error.lineno}:{error.colno}: {error.msg}"]) from None
    except RecursionError:
        raise InputErrors([f"{file}: nested too deeply"]) from None
    except ValueError as error:     # tomli passes on the error of int() for numbers with thousands of digits
        raise InputErrors([f"{file}: {error}"]) from None


def read_text(text: str, file: str) -> Layers:
    """Read the text of a TOML file, and the files that it extends.

    Parameters
    ----------
    file : its name in messages; relative paths in the text start at the folder of that name.

    Raises
    ------
    InputErrors
        The text is no TOML; a file that it extends cannot be read.
    """
    data, folder = parse_toml(text, file), os.path.dirname(file)
    base = data.pop("extends", None)
    if base is None:
        layers = Layers(Source(file, folder))
    else:
        if not isinstance(base, str) or not base or "\0" in base:
            raise InputErrors([f"{file}: extends: expected the path of a TOML file"])
        layers = read_layers(os.path.join(folder, os.path.expanduser(base)))
        layers.main = Source(file, folder)
    layers.add(data, Source(file, folder))
    return layers


def _chain(file: str) -> list[tuple[str, dict]]:
    """Return the file and the files it extends, nearest first, with their data."""
    chain, seen = [], []
    while True:
        seen.append(os.path.realpath(file))
        data = read_toml(file)
        chain.append((file, data))
        if "extends" not in data:
            return chain
        base = data["extends"]
        if not isinstance(base, str) or not base or "\0" in base:
            raise InputErrors([f"{file}: extends: expected the path of a TOML file"])
        below = os.path.normpath(os.path.join(os.path.dirname(file), os.path.expanduser(base)))
        if os.path.realpath(below) in seen:
            names = " -> ".join(name for name, _ in chain)
            raise InputErrors([f"{file}: extends: a circle: {names} -> {below}"])
        if not os.path.isfile(below):
            raise InputErrors([f'{file}: extends: no file "{below}"'])
        file = below


def _tables_of(overrides: Mapping[str, Any] | Iterable[str] | str | None, label: str) -> list[dict]:
    if isinstance(overrides, Mapping):
        pairs, faults = [(key, _plain(value)) for key, value in overrides.items()], []
    else:
        pairs, faults = _pairs([overrides] if isinstance(overrides, str) else overrides or (), label)
    tables = []
    for key, value in pairs:
        path = _key_path(key)
        if path is None:
            faults.append(f"{label}: {show(str(key))}: expected SECTION.KEY")
            continue
        if path == ["extends"]:
            faults.append(f"{label}: extends: cannot be overridden")
            continue
        for part in reversed(path):
            value = {part: value}
        tables.append(value)
    if faults:
        raise InputErrors(faults)
    return tables


def _plain(value: Any) -> Any:
    """Return a value as TOML types: NumPy's numbers and arrays, paths and tuples become plain values."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    numpy = sys.modules.get("numpy")        # a caller that passes NumPy values has imported it
    if numpy and isinstance(value, (numpy.generic, numpy.ndarray)):
        return value.tolist()
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _pairs(assignments: Iterable[str], label: str) -> tuple[list[tuple[str, Any]], list[str]]:
    pairs, faults = [], []
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        try:
            text.encode()       # the command line may hold bytes that are no text
            if not equals:
                raise ValueError
            pairs.append((key.strip(), _value_of(text.strip())))
        except tomli.TOMLDecodeError as error:
            faults.append(f"{label}: {key}: {error.msg}")
        except (ValueError, RecursionError):
            faults.append(f"{label}: {assignment!a}: expected SECTION.KEY=VALUE")
    return pairs, faults


def _value_of(text: str) -> Any:
    """Read a TOML value; a bare word is text, so that names and paths need no quotes."""
    try:
        table = tomli.loads(f"value = {text}")
        if len(table) == 1:
            return table["value"]
    except tomli.TOMLDecodeError:
        if text[:1] in ("[", "{", '"', "'"):
            raise
    return text


def _key_path(key: str) -> list[str] | None:
    try:
        table = tomli.loads(f"{key} = 0")
    except (ValueError, RecursionError):
        return None
    path = []
    while isinstance(table, dict):
        if len(table) != 1:
            return None
        (part, table), = table.items()
        path.append(part)
    return path
