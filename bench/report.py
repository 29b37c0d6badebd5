"""The results of the benchmarks, as one table at the end of the session."""
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
        """Add a row of texts; a following row with this name is joined to it.

        target : the promised value, if there is one.
        """
        found = Row(what, measured, target, detail)
        if self.rows and self.rows[-1].what == what:
            before = self.rows.pop()
            found = Row(what, *("; ".join(filter(None, texts)) for texts in zip(before[1:], found[1:], strict=True)))
        self.rows.append(found)

    def lines(self):
        """Yield the table, columns aligned."""
        rows = [Row("benchmark", "measured", "target", "detail"), *self.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        for row in rows:
            yield "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row.detail]).rstrip()
