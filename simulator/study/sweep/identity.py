"""The id of a run: equal runs have equal ids, on every machine and at every time.

The id covers all inputs of the results: the experiment with every default written out, except its name and its output
directory; the contents, not the paths, of the files that it reads, including fact files and users' modules; the sources
of the package. Reason: Vidur
keys a probe by job and rate alone, so that changed traces reuse stale results; vLLM's sweep skips by file names.
"""
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from simulator.config.experiment import Experiment
from simulator.config.fields import extra_of, table_of
from simulator.config.load import plain_value
from simulator.domain import facts
from simulator.study.sweep.sources import hash_of_sources

LENGTH = 16                     # hexadecimal digits of an id
UNASKED = ("name", "output")    # keys of an experiment that do not change the simulation
NO_SEED = "\0seed"              # placeholder for the seed; no value of a TOML file has such a character


def id_of(experiment: Experiment) -> str:
    """Return the id of a run; its seed is part of the experiment."""
    return Ids(experiment).of(experiment.seed)


class Ids:
    """The ids of an experiment's runs, by their seeds; its files are read once.

    more : inputs of the results beside the experiment.
    """

    def __init__(self, experiment: Experiment, more: Mapping[str, Any] = MappingProxyType({})):
        content = _content(experiment, UNASKED) | {"seed": NO_SEED}
        self._before, self._after = canonical({"experiment": content, "sources": hash_of_sources(), **more}).split(
            canonical(NO_SEED))

    def of(self, seed: int) -> str:
        """Return the id of the run with a seed."""
        return _digits(f"{self._before}{seed}{self._after}")


def hash_of(value: Any) -> str:
    """Return the first digits of the SHA-256 of a value as canonical JSON.

    Sorted keys, no blanks, UTF-8, floats as their shortest text; infinity is a text.
    """
    return _digits(canonical(value))


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def canonical(value: Any) -> str:
    """Return a value as canonical JSON."""
    return json.dumps(_finite(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return repr(value) if isinstance(value, float) and value in (float("inf"), float("-inf")) else value


def _content(struct: msgspec.Struct, unasked: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the TOML table of a Struct, with the hashes of files in place of their paths."""
    table = table_of(type(struct))
    found = {}
    for field in table.fields:
        value = getattr(struct, field.name)
        if value is None or field.name in unasked:
            continue
        if field.names_kind and ":" in value:
            found[field.name] = _of_class(value)
        else:
            found[field.name] = _value(value, extra_of(field.hint))
    return found | _content(getattr(struct, table.choice)) if table.choice else found


def _value(value: Any, extra: dict) -> Any:
    if isinstance(value, msgspec.Struct):
        return _content(value)
    if isinstance(value, dict) and any(isinstance(each, msgspec.Struct) for each in value.values()):
        return {_value(name, extra): _content(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_value(each, extra) for each in value]
    if isinstance(value, str) and value and "facts" in extra:
        return _of_file(str(facts.path_of(extra["facts"], value)))
    if isinstance(value, str) and value and extra.get("path"):
        return _of_file(value)
    return plain_value(value)


def _of_class(name: str) -> list[str]:
    """Return the name of a user's class, and the hash of its module; modules that it imports are not hashed."""
    module = sys.modules.get(name.partition(":")[0])
    file = getattr(module, "__file__", None)
    return [name, _of_file(file)] if file else [name]


def _of_file(name: str) -> str:
    """Return the hash of a file, or of all files in a folder; the name itself if there is no such file."""
    if os.path.isfile(name):
        stamp = os.stat(name)
        return _hash_of_file(name, stamp.st_mtime_ns, stamp.st_size)
    if os.path.isdir(name):
        inner = sorted(os.path.join(folder, file) for folder, _, files in os.walk(name) for file in files)
        return hashlib.sha256("".join(
            f"{os.path.relpath(path, name)}\0{_of_file(path)}\0" for path in inner).encode()).hexdigest()
    return name


@lru_cache(4096)
def _hash_of_file(name: str, modified_ns: int, size: int) -> str:
    with open(name, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
