"""The formats that results can be exported to, by name."""
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from simulator.results.directory import Contents
from simulator.results.export.blis import write_blis
from simulator.results.export.plain import write_csv_tables, write_parquet_tables
from simulator.results.export.source import Source
from simulator.results.export.vidur import write_simai, write_vidur

VIDUR_FILES = frozenset(("request_metrics.csv", "batch_metrics.csv", "chrome_trace.json", "event_trace.json",
                         "config.json"))
VIDUR_TABLES = ("requests", "iterations", "iterations",
                *("requests",) * 3, *("iterations",) * 5)       # most events of a row, in event_trace.json
BLIS_FILES = frozenset(("metrics.json", "results.json"))


class Format(NamedTuple):
    """One format.

    write : writes a source into a folder, reports its progress in rows, and returns notes on blank columns.
    is_own : returns whether it writes a file of that name.
    required : files without which a folder of it is not complete.
    tables : each as often as its rows are written; None: all tables, once.
    """

    write: Callable[[Source, Path, Callable[[int], None]], list[str]]
    is_own: Callable[[str], bool]
    required: frozenset[str]
    tables: tuple[str, ...] | None = None

    def contents(self) -> Contents:
        """Return the files of a folder of this format."""
        return Contents("`export`", self.is_own, self.required, lambda _: "exported results exist")


FORMATS = {
    "blis": Format(write_blis, BLIS_FILES.__contains__, BLIS_FILES, ("requests", "requests")),
    "csv": Format(write_csv_tables, lambda name: name.endswith(".csv"), frozenset(("replicas.csv",))),
    "parquet": Format(write_parquet_tables, lambda name: name.endswith(".parquet"), frozenset(("replicas.parquet",))),
    "simai": Format(write_simai, VIDUR_FILES.__contains__, VIDUR_FILES, VIDUR_TABLES),
    "vidur": Format(write_vidur, VIDUR_FILES.__contains__, VIDUR_FILES, VIDUR_TABLES),
}
