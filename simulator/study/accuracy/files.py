"""The files of a score: score.json, score.csv, points.csv, score.md."""
import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path

import msgspec

from simulator.errors import InputErrors
from simulator.results.directory import check_folder
from simulator.study.accuracy.page import page
from simulator.study.accuracy.rows import Point, Row
from simulator.study.accuracy.scoring import Score, Scored
from simulator.study.sweep.writing import write as write_text

JSON, CSV, PAGE, POINTS = "score.json", "score.csv", "score.md", "points.csv"


def check_free(folder: Path, overwrite: bool) -> None:
    """Make sure that the files can be written.

    Raises
    ------
    InputErrors
        Some exist, and may not be replaced; or the folder cannot be.
    """
    check_folder(folder)
    taken = [name for name in (JSON, CSV, PAGE, POINTS) if (folder / name).exists()]
    if taken and not overwrite:
        raise InputErrors([f"{folder / taken[0]}: exists; --overwrite replaces it, --out chooses another directory"])


def write(scored: Scored, folder: Path) -> None:
    """Write the files into a folder, each whole or not at all."""
    write_text(folder / JSON, json_of(scored.score))
    write_text(folder / CSV, csv_of(Row, scored.score.rows))
    write_text(folder / POINTS, csv_of(Point, scored.points))
    write_text(folder / PAGE, page(scored.score))


def json_of(score: Score) -> str:
    """Return the content of score.json."""
    return json.dumps(msgspec.to_builtins(score), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def csv_of(kind: type[msgspec.Struct], rows: Iterable[msgspec.Struct]) -> str:
    """Return rows as CSV; unknown values are empty cells."""
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(kind.__struct_fields__)
    table.writerows(msgspec.structs.astuple(row) for row in rows)
    return stream.getvalue()
