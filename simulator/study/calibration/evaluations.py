"""Evaluations of a fit, a line each, so that one that was stopped goes on where it was."""
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.errors import InputErrors, OutputError
from simulator.study.sweep.identity import canonical

FILE = "evaluations.jsonl"


class Evaluations:
    """What was simulated, by the values of keys, in a file that is appended to.

    A context manager. A line that is torn at the end of the file counts as not written.

    Parameters
    ----------
    question : what was asked, as `identity.hash_of` has it; evaluations of another question are of no use.

    Raises
    ------
    InputErrors
        The directory holds those of another question.
    """

    def __init__(self, directory: Path, question: str):
        self._path, self._question = directory / FILE, question
        self._known: dict[str, float] = {}
        self._stream: Any = None
        self.num_made = 0

    def __enter__(self):
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._read()
            self._stream = open(self._path, "ab")       # it is closed in __exit__
            if self._stream.tell() == 0:
                self._append({"question": self._question})
        except OSError as error:
            raise OutputError(self._path, error) from error
        return self

    def __exit__(self, *exception):
        self._stream.close()

    def known(self, values: Mapping[str, float]) -> float | None:
        """Return the objective at some values; None: nobody has evaluated it."""
        return self._known.get(canonical(dict(values)))

    def keep(self, values: Mapping[str, float], objective: float) -> None:
        """Remember an evaluation."""
        self._known[canonical(dict(values))] = objective
        self._append({"values": dict(values), "objective": objective})
        self.num_made += 1

    def _append(self, content: dict[str, Any]) -> None:
        try:
            self._stream.write(json.dumps(content).encode() + b"\n")
            self._stream.flush()
        except OSError as error:
            raise OutputError(self._path, error) from error

    def _read(self) -> None:
        if not self._path.exists():
            return
        data = self._path.read_bytes()
        whole = data[:data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(self._path, len(whole))
        try:
            lines = [json.loads(line) for line in whole.splitlines()]
            if lines and lines[0]["question"] != self._question:
                raise InputErrors([f"{self._path}: evaluations of another question: other data, another experiment, "
                                   "other keys or another version; --out chooses another directory"])
            self._known = {canonical(line["values"]): line["objective"] for line in lines[1:]}
        except (ValueError, LookupError, TypeError) as error:
            if isinstance(error, InputErrors):
                raise
            raise InputErrors([f"{self._path}: damaged; --out chooses another directory"]) from None
