"""Evaluations of a fit, a line each, so that a stopped fit can resume."""
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.errors import InputErrors, OutputError
from simulator.study.sweep.identity import canonical

FILE = "evaluations.jsonl"


class Evaluations:
    """Results of simulations, by the values of keys, in a file that is appended to.

    A context manager. A line that is torn at the end of the file counts as not written.

    Parameters
    ----------
    question : hash of the question, from `identity.hash_of`; evaluations of another question cannot be used.

    Raises
    ------
    InputErrors
        The directory holds evaluations of another question.
    """

    def __init__(self, directory: Path, question: str):
        self._path, self._question = directory / FILE, question
        self._known: dict[str, float] = {}
        self._stream: Any = None
        self.num_made = 0

    def __enter__(self):
        try:
            self._read()
        except OSError as error:
            raise OutputError(self._path, error) from error
        return self

    def __exit__(self, *exception):
        if self._stream is not None:
            self._stream.close()

    def known(self, values: Mapping[str, float]) -> float | None:
        """Return the objective at some values; None: not evaluated."""
        return self._known.get(canonical(dict(values)))

    def keep(self, values: Mapping[str, float], objective: float) -> None:
        """Store an evaluation."""
        self._known[canonical(dict(values))] = objective
        self._append({"values": dict(values), "objective": objective})
        self.num_made += 1

    def _append(self, content: dict[str, Any]) -> None:
        try:
            if self._stream is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._stream = open(self._path, "ab")       # noqa: SIM115 -- until __exit__
                if self._stream.tell() == 0:
                    self._append({"question": self._question})
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
