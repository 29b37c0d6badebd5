"""The experiments of configs/, listed and copied also without a checkout.

The files of an example are found by name: any text in it that is the relative path of something in configs/ counts.
So no list of keys is needed, and no separate readers for comparisons and studies.
"""
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simulator.config.layers import read_toml
from simulator.domain import facts
from simulator.errors import InputErrors, OutputError, nearest

FOLDER = "configs"
ELSEWHERE = "--to FOLDER writes elsewhere"
_SENTENCES = re.compile(r".*\.(?= |$)")
_DATA = re.compile(r"[\w./-]+\.(toml|csv|jsonl?|ya?ml|h5|parquet|gz)")


def names() -> list[str]:
    """Return the sorted names of all examples."""
    return sorted(path.stem for path in _folder().glob("*.toml"))


def listing() -> str:
    """Return a line for each example: its name and purpose."""
    lines = {name: _first_line(name) for name in names()}
    width = max(map(len, lines))
    return "\n".join(f"{name:{width}}  {line}" for name, line in lines.items())


def command(name: str) -> str:
    """Return the command that runs an example: run, compare, sweep, ..."""
    data = read_toml(str(_file(name)))
    if "study" in data:
        return data["study"].get("kind", "sweep")
    return "compare" if "variants" in data else "run"


def lacking(name: str) -> list[str]:
    """Return the data files that the user must provide; see the example's comment."""
    path = _file(name)
    texts = _texts(read_toml(str(path)))
    return [text for text in texts if _DATA.fullmatch(text) and not (path.parent / text).exists()]


def files(name: str) -> list[Path]:
    """Return the example and every file that it names, relative to configs/.

    Files named by these TOML files are included.

    Raises
    ------
    InputErrors
        No such example.
    """
    found: dict[Path, None] = {}
    left = [_file(name)]
    while left:
        path = left.pop(0)
        if path not in found:
            found[path] = None
            left += _named(path) if path.suffix == ".toml" else ()
    return [path.relative_to(_folder()) for path in found]


def write(name: str, target: str | os.PathLike) -> list[Path]:
    """Copy an example and the files that it names, each to its path in configs/.

    Parameters
    ----------
    target : the folder, made if absent. A present file with equal content, e.g. of another example, is kept.

    Returns
    -------
    list
        The paths of the copies, the example first.

    Raises
    ------
    InputErrors
        No such example; a file exists with other content, or cannot be written. Nothing is replaced.
    """
    target = os.path.expanduser(target)
    contents = {Path(target, path): (_folder() / path).read_bytes() for path in files(name)}
    if taken := [path for path, content in contents.items() if os.path.lexists(path) and not _holds(path, content)]:
        raise InputErrors([f"{path}: exists, with other content, and is left alone; {ELSEWHERE}" for path in taken])
    for path, content in contents.items():
        if not os.path.lexists(path):
            _put(path, content)
    return list(contents)


def _folder() -> Path:
    return Path(os.path.abspath(facts.shipped(FOLDER)))     # without .., for comparison of paths


def _file(name: str) -> Path:
    known = names()
    if name not in known:
        hint = nearest(name, known) or "; `simulator example` lists them"
        raise InputErrors([f'no example "{name}"{hint}'])
    return _folder() / f"{name}.toml"


def _first_line(name: str) -> str:
    """Return the complete sentences of the first comment line, or the line if its sentence continues below."""
    with open(_file(name), encoding="utf-8") as lines:
        line = next(lines).lstrip("#").strip()
    whole = _SENTENCES.match(line)
    return whole[0].removesuffix(".") if whole else f"{line} ..."


def _named(path: Path) -> Iterator[Path]:
    """Yield the files in configs/ that a TOML file names; for a folder, all its files."""
    for text in _texts(read_toml(str(path))):
        if "/" not in text and "." not in text:         # a word, e.g. `linear`, that equals a folder's name by chance
            continue
        place = Path(os.path.normpath(path.parent / text))
        if place.is_relative_to(_folder()):
            inside = sorted(place.rglob("*")) if place.is_dir() else [place]
            yield from (each for each in inside if each.is_file() and "__pycache__" not in each.parts)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str) and "\n" not in value:
        yield value


def _holds(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def _put(path: Path, content: bytes) -> None:
    """Write a new file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "xb") as file:
            file.write(content)
    except OSError as error:
        if error.errno in OutputError.ERRNOS:
            path.unlink(missing_ok=True)
            raise OutputError(path, error) from error
        raise InputErrors([f"{path}: cannot be written: {error.strerror}; {ELSEWHERE}"]) from error
