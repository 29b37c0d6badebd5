"""The store of a study: segment files with one writer each, which appends a line for each run that has ended.

A file with one writer needs no lock and works on network file systems. A killed writer loses at most the runs in
flight, a power cut at most the lines of the last second; a torn line at the end of a file counts as not written.
"""
import os
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from simulator.errors import InputErrors, OutputError
from simulator.study.sweep.trial import DONE, FAILED, KILLED, REFUSED, TIMEOUT, Finished, line_of, read_line

FOLDER = "segments"
ENDING = ".jsonl"
SYNC_S = 1.0                    # between two calls of fsync


class Stored(NamedTuple):
    """The content of all segments.

    finished : by id. num_torn : last lines that were incomplete or damaged.
    faults : bad lines in the middle of a file, and runs with two different results, a sentence each.
    differing : ids of runs with two different results.
    """

    finished: dict[str, Finished]
    num_torn: int
    faults: list[str]
    differing: list[str]


class Segment:
    """A file that only this process appends to.

    Parameters
    ----------
    directory : of the study.
    writer : first part of the file's name; None: host and process.
    """

    def __init__(self, directory: Path, writer: str | None = None):
        folder = directory / FOLDER
        try:
            folder.mkdir(exist_ok=True)
            name = f"{writer or f'{socket.gethostname()}-{os.getpid()}'}-{secrets.token_hex(4)}{ENDING}"
            self.path = folder / name
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        except OSError as error:
            raise OutputError(folder, error) from error
        self._synced_s = time.monotonic()

    def append(self, finished: Finished) -> None:
        """Write a run, with one system call.

        Raises
        ------
        OutputError
            A write failed, for instance because the disk is full; earlier lines stay.
        """
        line = line_of(finished)
        try:
            written = os.write(self._descriptor, line)
            if written < len(line):             # the rest fails with the reason
                os.write(self._descriptor, line[written:])
            if time.monotonic() - self._synced_s > SYNC_S:
                self.sync()
        except OSError as error:
            raise OutputError(self.path, error) from error

    def sync(self) -> None:
        """Wait until all lines are on the disk."""
        os.fsync(self._descriptor)
        self._synced_s = time.monotonic()

    def close(self) -> None:
        """Write remaining lines to the disk; a segment without runs is removed."""
        try:
            self.sync()
            is_empty = os.fstat(self._descriptor).st_size == 0
        finally:
            os.close(self._descriptor)
        if is_empty:
            self.path.unlink(missing_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def read_all(directory: Path) -> Stored:
    """Return the content of the segments of a study, in the order of their names."""
    found, num_torn, faults, differing = {}, 0, [], []
    for path in sorted((directory / FOLDER).glob(f"*{ENDING}")):
        lines, torn = 0, None
        for number, finished in enumerate(_lines(path), 1):
            if torn is not None:
                faults.append(f"{path}:{torn}: damaged: its CRC is not that of the line")
                torn = None
            if finished is None:
                torn = number
                continue
            lines += 1
            known = found.setdefault(finished.id, finished)
            if KEPT[finished.status] > KEPT[known.status] or (
                    KEPT[finished.status] == KEPT[known.status] and finished.status != DONE):
                found[finished.id] = finished               # run again
            elif finished.status == known.status == DONE and known.result() != finished.result():
                differing.append(finished.id)
                faults.append(_difference(known, finished))
        num_torn += torn is not None
    return Stored(found, num_torn, faults, differing)


# Precedence of two results of one run: one process may die for want of memory, time or an extra that another has.
KEPT = {DONE: 3, REFUSED: 2, FAILED: 1, TIMEOUT: 0, KILLED: 0}


def checked(stored: Stored) -> Stored:
    """Return the stored runs.

    Raises
    ------
    InputErrors
        Lines are damaged.
    """
    damaged = [fault for fault in stored.faults if not fault.startswith(NOT_DETERMINISTIC)]
    if damaged:
        raise InputErrors([f"{fault}; `study check --repair` sets the segment aside" for fault in damaged])
    return stored


NOT_DETERMINISTIC = "not deterministic: "


def _difference(one: Finished, other: Finished) -> str:
    for key in sorted(one.summary.keys() | other.summary.keys()):
        if one.summary.get(key) != other.summary.get(key):
            return (f"{NOT_DETERMINISTIC}id {one.id}: {key} {one.summary.get(key)} in one segment, "
                    f"{other.summary.get(key)} in another")
    return f"{NOT_DETERMINISTIC}id {one.id}: what two runs say of themselves differs"


def _lines(path: Path) -> Iterator[Finished | None]:
    with open(path, "rb") as stream:
        for line in stream:
            yield read_line(line)
