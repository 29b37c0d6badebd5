"""Measurements as files: observed.csv, steps.csv, dataset.toml or steps.toml."""
import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import tomli_w

from simulator.errors import InputErrors
from simulator.results.directory import check_folder
from simulator.study.accuracy.data_set import FILE as DATASET
from simulator.study.measured.record import REQUEST_COLUMNS, STEP_COLUMNS, Measured, Row
from simulator.study.sweep.writing import write as write_text

REQUESTS, STEPS = "observed.csv", "steps.csv"
STEPS_ABOUT = "steps.toml"      # engine and version of iterations without requests
NOT_KNOWN = "not known"
# Keys of dataset.toml for the provenance of measurements.
ABOUT = ("measured", "machine", "engine", "version", "date", "source", "licence")
HEAD = """\
# Written by `import`. Before `score` accepts it, [experiment] must describe the server: model, hardware, topology,
# engine, as in an experiment; replace "not known" where the fact is known.
"""


def check_free(folder: Path, overwrite: bool) -> None:
    """Make sure that the files can be written.

    Raises
    ------
    InputErrors
        Some are there, and may not be replaced; or the folder cannot be.
    """
    check_folder(folder)
    taken = [name for name in (REQUESTS, STEPS, DATASET, STEPS_ABOUT) if (folder / name).exists()]
    if taken and not overwrite:
        raise InputErrors([f"{folder / taken[0]}: exists; --overwrite replaces it, --out chooses another directory"])


def write(found: Measured, folder: Path, about: Mapping[str, str]) -> list[str]:
    """Write the files of a data set, each whole or not at all; return their names.

    about : provenance, over what the source says itself.
    """
    names = []
    if found.requests:
        with_prompts = any(row.get("prompt") for row in found.requests)
        columns = REQUEST_COLUMNS if with_prompts else REQUEST_COLUMNS[:-1]
        write_text(folder / REQUESTS, csv_text(columns, found.requests))
        write_text(folder / DATASET, HEAD + tomli_w.dumps(_data_set(found, folder, about)))
        names += [REQUESTS, DATASET]
    if found.steps:
        write_text(folder / STEPS, csv_text(STEP_COLUMNS, found.steps))
        names.append(STEPS)
        facts = {**found.about, **about}
        if not found.requests and "version" in facts:
            write_text(folder / STEPS_ABOUT, tomli_w.dumps(facts))
            names.append(STEPS_ABOUT)
    for name in {REQUESTS, STEPS, DATASET, STEPS_ABOUT} - set(names):     # of an earlier import into this folder
        (folder / name).unlink(missing_ok=True)
    return names


def csv_text(columns: Sequence[str], rows: list[Row]) -> str:
    """Return rows as CSV; missing values are empty cells."""
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(columns)
    table.writerows([_cell(row.get(column)) for column in columns] for row in rows)
    return stream.getvalue()


def _cell(value) -> str:
    """Return a value as text, times to the nanosecond; a text on one line."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.9f}".rstrip("0").rstrip(".")
    return " ".join(str(value).split())


def _data_set(found: Measured, folder: Path, about: Mapping[str, str]) -> dict:
    digest = hashlib.sha256((folder / REQUESTS).read_bytes()).hexdigest()
    says = dict.fromkeys(ABOUT, NOT_KNOWN) | {"measured": "TTFT, TPOT and E2E of each request"}
    return {
        "name": found.name, **says, **found.about, **about, "level": "request", "purpose": "held", "fits": [],
        "form": "observed", "files": [{"role": "requests", "path": f"./{REQUESTS}", "sha256": digest}],
        "experiment": {}}
