"""Cache of composed tables on disk: composing is the slowest step of a start.

The name of a file is a digest of its inputs: parameters, model, accelerator, parallelism, the list of table files, the
sources of this package that read and compose, NumPy's version. The file is valid while the content of the tables is
unchanged and, if a collective model times communication, while its answers are unchanged; else it is rewritten. It is
one record of a .npy file with a checksum, read in 10 ms; HDF5 would have to be imported first. A folder that cannot be
written is no fault: the tables are then composed at each start.
"""
import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from simulator.errors import InputErrors
from simulator.latency.operators.cache import digest_of
from simulator.latency.operators.composition import IterationTables
from simulator.latency.operators.curves import Times
from simulator.latency.operators.files import find_tables
from simulator.latency.operators.prefixes import Behind
from simulator.latency.operators.profiles import profile_files
from simulator.latency.table_cache import DAMAGE, cache_folder, damaged

FOLDER = "composed"             # in the cache directory
FORMAT = 3                      # of the files
NUM_KEPT = 64                   # files, of 5 to 15 MB; the least recently used are deleted
SOURCES = ("latency/operators", "latency/roofline", "domain", "core", "collective")     # folders of code in the digest
PACKAGE = Path(__file__).parents[2]
CHECK, FACTS = "check", "facts"


class Reading(NamedTuple):
    """The tables of one deployment.

    tables : IterationTables.
    sources : table -> file, version, sha256.
    missing : operator -> description of the missing measurement.
    notes : notes for people on the files, a sentence each.
    num_spikes : number of measured points left out.
    cached : table -> (number of points faster than memory, number of points).
    """

    tables: Any
    sources: dict
    missing: dict
    notes: list
    num_spikes: int
    cached: dict


class Answers:
    """A collective model that records its calls and their results.

    said : (group, kind, bytes, seconds), in the order of calls.
    """

    def __init__(self, collective):
        self._collective = collective
        self.said: list[tuple[str, str, float, float]] = []

    def predict(self, group: str, kind: str, num_bytes: float) -> float:
        """Return the seconds of a collective."""
        seconds = float(self._collective.predict(group, kind, num_bytes))
        self.said.append((group, kind, num_bytes, seconds))
        return seconds


def kept(parameters, deployment, collective, compose: Callable[[Any], tuple]) -> Reading:
    """Return the cached Reading of equal inputs, or compose and cache it.

    Parameters
    ----------
    parameters : OperatorsParameters
    deployment : Deployment
    collective : CollectiveModel
        None: the tables time communication.
    compose : called with a collective model, or None. Returns a Reading; the SHA-256 of each opened file, by path;
        notes for this run only.

    Raises
    ------
    InputErrors
        No tables, or an error of `compose`.
    """
    path = _file_of(parameters, deployment, collective)
    try:
        record = _loaded(path)
        if record is not None and _holds(record[1], parameters.cache_directory, collective):
            with suppress(OSError):
                os.utime(path)                  # used just now
            return _reading_of(*record)
        notes = []
    except DAMAGE:
        notes = [damaged(path)]
    answers = None if collective is None else Answers(collective)
    reading, opened, once = compose(answers)
    _keep(path, reading, {"opened": opened, "answers": [] if answers is None else answers.said})
    return reading._replace(notes=notes + once + reading.notes)


def _file_of(parameters, deployment, collective) -> Path:
    """Return the path of the cache file, from the inputs known before tables are read."""
    folder = parameters.path and Path(parameters.path)
    files = profile_files(folder) if folder else {}
    if not files:
        files = find_tables(parameters.path, parameters.system, deployment.accelerator.name, parameters.framework)
    listed = sorted((name, [str(each) for each in (paths if isinstance(paths, list) else [paths])])
                    for name, paths in files.items())
    kind = type(collective)
    key = hashlib.sha256(msgspec.msgpack.encode([
        FORMAT, replace(parameters, cache_directory=None), deployment, listed, sources_digest(PACKAGE), np.__version__,
        f"{kind.__module__}:{kind.__qualname__}"]))
    return cache_folder(parameters.cache_directory) / FOLDER / f"{key.hexdigest()[:32]}.npy"


@cache
def sources_digest(package: Path) -> str:
    """Return the SHA-256 of a package's sources that read and compose tables."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((package / folder).rglob("*.py*")):
            if path.suffix in (".py", ".pyx"):
                digest.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _holds(facts: dict, cache_directory: str | None, collective) -> bool:
    """Return whether the files and the collective model are unchanged since the tables were composed."""
    try:
        return (all(digest_of(Path(path), cache_directory) == digest for path, digest in facts["opened"].items())
                and all(collective.predict(group, kind, num_bytes) == seconds
                        for group, kind, num_bytes, seconds in facts["answers"]))
    except InputErrors:                         # a file is gone: composing again reports it, or uses another file
        return False


# ---- files

def _keep(path: Path, reading: Reading, checked: dict) -> None:
    """Write a file, whole or not at all; if writing fails, nothing is cached."""
    record = _record_of(reading, checked)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                np.save(file, record, allow_pickle=False)
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
        used = sorted(((each.stat().st_mtime_ns, each) for each in path.parent.glob("*.npy")), reverse=True)
        for _, each in used[NUM_KEPT:]:
            each.unlink(missing_ok=True)


def _record_of(reading: Reading, checked: dict) -> np.ndarray:
    tables = reading.tables
    arrays = {f"tokens_ns.{name}": ns for name, ns in tables.tokens_ns.items()}
    arrays |= {f"samples_ns.{name}": ns for name, ns in tables.samples_ns.items()}
    arrays |= {"tokens_origins": tables.tokens_origins, "samples_origins": tables.samples_origins}
    for name in ("decode", "mixed", "prefill"):
        times = getattr(tables, name)
        arrays |= {f"{name}.ns": times.ns, f"{name}.origins": times.origins}
    if tables.unequal is not None:
        arrays["unequal"] = tables.unequal
    if tables.behind is not None:
        arrays |= {f"behind.{name}": values for name, values in tables.behind._asdict().items()}
    facts = checked | reading._asdict() | {
        "tables": {"state_sequence_ns": float(tables.state_sequence_ns), "state_token_ns": float(tables.state_token_ns),
                   "origins": tables.origins}}
    text = json.dumps(facts).encode()
    fields = [(CHECK, np.uint32), *((name, values.dtype, values.shape) for name, values in arrays.items()),
              (FACTS, f"S{len(text)}")]
    record = np.zeros(1, np.dtype(fields, align=True))
    for name, values in arrays.items():
        record[name][0] = values
    record[FACTS] = text
    record[CHECK] = _check(record)
    return record


def _loaded(path: Path) -> tuple[np.ndarray, dict] | None:
    """Return a record and its facts; None: there is none.

    Raises
    ------
    DAMAGE
        The content differs from the written one.
    """
    if not path.is_file():
        return None
    try:
        record = np.load(path, allow_pickle=False)
    except EOFError as error:
        raise ValueError(f"{path}: cut off") from error
    if record[CHECK][0] != _check(record):
        raise ValueError(f"{path}: another checksum")
    record.flags.writeable = False              # models share it
    return record, json.loads(record[FACTS][0])


def _check(record: np.ndarray) -> int:
    """Return the checksum of names, shapes and all bytes but the checksum's own, which come first."""
    return zlib.crc32(record.view(np.uint8)[4:], zlib.crc32(str(record.dtype.descr).encode()))


def _reading_of(record: np.ndarray, facts: dict) -> Reading:
    def part(prefix: str) -> dict[str, np.ndarray]:
        return {name.removeprefix(prefix): record[name][0] for name in record.dtype.names if name.startswith(prefix)}

    tables = IterationTables(
        tokens_ns=part("tokens_ns."), samples_ns=part("samples_ns."),
        tokens_origins=record["tokens_origins"][0], samples_origins=record["samples_origins"][0],
        **{name: Times(**part(f"{name}.")) for name in ("decode", "mixed", "prefill")},
        unequal=record["unequal"][0] if "unequal" in record.dtype.names else None,
        behind=Behind(**part("behind.")) if part("behind.") else None, **facts["tables"])
    return Reading(tables, facts["sources"], facts["missing"], facts["notes"], facts["num_spikes"],
                   {what: tuple(counts) for what, counts in facts["cached"].items()})
