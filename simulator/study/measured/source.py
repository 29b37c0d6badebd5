"""A file to be imported: its content, the files beside it, its faults."""
import csv
import io
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from simulator.errors import InputErrors
from simulator.workload.reading.faults import Faults
from simulator.workload.reading.files import check_text, read_bytes

# Endings of the names of files of one measurement, after their common stem.
ENDINGS = (".requests.csv", ".steps.csv.req", ".steps.csv", ".tokens.csv", ".info.txt", ".iteration_log.txt")


class Source:
    """A file, read once.

    faults : collects the faults of the file.
    """

    def __init__(self, path: str):
        self.path = path
        self.data = read_bytes(path)
        check_text(path, self.data)
        self.faults = Faults(path)

    @cached_property
    def keys(self) -> dict[str, msgspec.Raw]:
        """The keys of the JSON object in the file, or in its first line; else none."""
        for text in (self.data, self.data.lstrip().split(b"\n", 1)[0]):
            try:
                return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            except (msgspec.DecodeError, RecursionError):
                continue
        return {}

    @cached_property
    def items(self) -> list[msgspec.Raw]:
        """The items of the JSON list in the file; empty: it has no list."""
        try:
            return msgspec.json.decode(self.data, type=list[msgspec.Raw])
        except (msgspec.DecodeError, RecursionError):
            return []

    @cached_property
    def columns(self) -> set[str]:
        """The names in the first line, read as CSV; comments are skipped."""
        for line in self.data[:2**16].decode("utf-8", "replace").splitlines():
            if line.strip() and not line.startswith("#"):
                return {name.strip() for name in line.split(",")}
        return set()

    @property
    def stem(self) -> str:
        """Its name without the ending of its kind of file."""
        name = Path(self.path).name.removesuffix(".gz")
        ending = next((each for each in ENDINGS if name.endswith(each)), Path(name).suffix)
        return name.removesuffix(ending)

    def side(self, ending: str) -> "Source | None":
        """Return the file beside it with another ending, plain or .gz, or None."""
        for packed in ("", ".gz"):
            path = Path(self.path).with_name(self.stem + ending + packed)
            if path.is_file() and path != Path(self.path):
                return Source(str(path))
        return None

    def rows(self, needed: dict[str, type]) -> list[tuple[int, dict[str, Any]]]:
        """Return line and cells of each row of a CSV file, after its comments.

        Parameters
        ----------
        needed : required columns, and the types of their cells; other columns stay text.

        Raises
        ------
        InputErrors
            A column is missing. Faults of cells go to `faults`.
        """
        text = self.data.decode()
        lines = text.splitlines(keepends=True)
        above = next((i for i, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
        reader = csv.DictReader(io.StringIO("".join(lines[above:])), restval="")
        names = reader.fieldnames or []
        lacking = [f'{self.path}:{above + 1}: column "{name}" is missing' for name in needed if name not in names]
        if lacking:
            raise InputErrors(lacking)
        rows = []
        try:
            for row in reader:
                line = above + reader.line_num
                if row.pop(None, None):
                    self.faults.add(line, f"expected {len(names)} cells, as many as columns, found more")
                rows.append((line, row | {name: self._cell(line, name, row[name], kind)
                                          for name, kind in needed.items()}))
        except csv.Error as error:
            self.faults.add(above + reader.line_num, f"no CSV: {error}")
        return rows

    def decoded(self, raw: msgspec.Raw | bytes, kind: type, place: str) -> Any:
        """Return a piece of JSON as a Struct; None, and a fault, if it is invalid.

        place : its name in messages: a line's number as text, or a key.
        """
        try:
            return msgspec.json.decode(raw, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            self.wrong(place, str(error))
            return None

    def contents(self) -> list[tuple[str, Any]]:
        """Return place and content of the JSON in the file.

        It is whole, or an object a line. Faults of lines go to `faults`.
        """
        try:
            return [("", msgspec.json.decode(self.data))]
        except (msgspec.DecodeError, RecursionError):
            return [(str(number), self.decoded(line, dict, str(number)))
                    for number, line in enumerate(self.data.splitlines(), 1) if line.strip()]

    def wrong(self, place: str, text: str) -> None:
        """Add a fault of a line, a number as text, or of a key."""
        if place.isdecimal():
            self.faults.add(int(place), text)
        else:
            self.faults.add(0, f"{place}: {text}")

    def _cell(self, line: int, name: str, text: str, kind: type) -> Any:
        try:
            value = kind(text)
            if kind is float and not abs(value) < 1e12:
                raise ValueError
        except ValueError:
            self.faults.add_cell(line, name, "a whole number" if kind is int else "a number", text)
            return kind()
        return value
