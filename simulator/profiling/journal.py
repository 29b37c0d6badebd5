"""Tables on disk that grow row by row, and survive the end of the process at any moment.

A row is written and flushed as soon as it is measured, with its newline in one write: a last line without newline was
cut off, and is dropped when the folder is opened again. A table's first row is written together with its header, so
that no table is without rows.
"""
import csv
import io
from contextlib import ExitStack
from pathlib import Path

from simulator.errors import InputErrors
from simulator.profiling.plan import KEYS, Point

MEASURED = ("kernel_source", "timing", "latency_ms", "spread_frac", "repeats", "sm_mhz")
SUFFIX = "_perf.csv"
NOT_MEASURED = "not_measured.csv"
MISSED = ("table", "point", "reason")


class Journal:
    """The rows of a profile; use it as a context.

    Parameters
    ----------
    folder : created if missing.

    Attributes
    ----------
    rows : point -> its measured cells, by column, as text.
    missed : text of a point -> the reason why it was not measured.

    Raises
    ------
    InputErrors
        A table has other columns.
    """

    def __init__(self, folder: Path):
        self._folder, self._files, self._open = folder, {}, ExitStack()
        self.rows: dict[Point, dict[str, str]] = {}
        self.missed: dict[str, str] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for table in KEYS:
            for cells in self._whole_rows(f"{table}{SUFFIX}", (*KEYS[table], *MEASURED)):
                self.rows[_point(table, cells)] = dict(zip(MEASURED, cells[len(KEYS[table]):]))
        self.missed = {cells[1]: cells[2] for cells in self._whole_rows(NOT_MEASURED, MISSED)}

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._open.close()

    def __contains__(self, point: Point) -> bool:
        return point in self.rows or str(point) in self.missed

    def add(self, point: Point, **measured) -> None:
        """Write the row of a point; `measured` as MEASURED."""
        cells = [str(measured[name]) for name in MEASURED]
        self._append(f"{point.table}{SUFFIX}", (*KEYS[point.table], *MEASURED), [*point.cells, *cells])
        self.rows[point] = dict(zip(MEASURED, cells))

    def miss(self, point: Point, reason: str) -> None:
        """Note that a point could not be measured."""
        reason = " ".join(reason.split())[:300]
        self._append(NOT_MEASURED, MISSED, [point.table, str(point), reason])
        self.missed[str(point)] = reason

    def _append(self, name: str, header: tuple[str, ...], cells: list) -> None:
        path = self._folder / name
        rows = [cells] if path.is_file() else [header, cells]
        if name not in self._files:
            file = open(path, "a", encoding="utf-8", newline="")    # noqa: SIM115 -- until the journal is closed
            self._files[name] = self._open.enter_context(file)
        self._files[name].write(_text(rows))
        self._files[name].flush()

    def _whole_rows(self, name: str, header: tuple[str, ...]) -> list[list[str]]:
        """Return the rows of a file, after dropping a line that was cut off."""
        path = self._folder / name
        if not path.is_file():
            return []
        text = path.read_bytes()
        whole = text[:text.rfind(b"\n") + 1]
        rows = list(csv.reader(io.StringIO(whole.decode("utf-8"))))
        if len(rows) < 2:
            path.unlink()
            return []
        if tuple(rows[0]) != header:
            raise InputErrors([f"{path}:1: expected the columns {','.join(header)}, found {','.join(rows[0])[:200]}"])
        wrong = [number for number, row in enumerate(rows, 1) if len(row) != len(header)]
        if wrong:
            raise InputErrors([f"{path}:{wrong[0]}: expected {len(header)} cells, found {len(rows[wrong[0] - 1])}"])
        if len(whole) < len(text):
            with open(path, "r+b") as file:
                file.truncate(len(whole))
        return rows[1:]


def _point(table: str, cells: list[str]) -> Point:
    keys = cells[:len(KEYS[table])]
    return Point(table, tuple(int(cell) if cell.isdecimal() else cell for cell in keys))


def _text(rows: list) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
