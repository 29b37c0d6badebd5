"""What the benchmarks found, as one table at the end of the session."""
from typing import NamedTuple


class Row(NamedTuple):
    what: str
    measured: str
    target: str
    detail: str


class Report:
    """Rows in the order in which they were measured."""

    def __init__(self):
        self.rows = []

    def add(self, what, measured, target="", detail=""):
        """Add a row of texts; `target`: what is promised, if anything is."""
        self.rows.append(Row(what, measured, target, detail))

    def lines(self):
        """Yield the table, columns aligned."""
        rows = [Row("benchmark", "measured", "target", "detail"), *self.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        for row in rows:
            yield "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row.detail]).rstrip()
