"""observed.csv itself, and steps.csv: checked, and copied to the folder of a data set."""
from pathlib import Path

from simulator.study.measured.record import STEP_COLUMNS, Measured, Row, failure_notes, from_first, late
from simulator.study.measured.source import Source
from simulator.workload.formats.observed import COLUMNS, scan_observed
from simulator.workload.formats.observed_prompts import as_long_as, planned_prompts
from simulator.workload.limits import MISSING
from simulator.workload.reading.csv_scan import Kind, Scan

NAME = "observed.csv"
STEPS_NAME = "steps.csv"
PLANNED = "trace.csv"           # of `observe`: the native trace of the planned requests
NS = 1e-9


def recognises(source: Source) -> bool:
    """Return whether a file has this format."""
    return {"request_id", "sent_s", "status"} <= source.columns


def read(source: Source) -> list[Measured]:
    """Return the requests of a file, and the iterations in the steps.csv beside it.

    Raises
    ------
    InputErrors
        All faults of its cells.
    """
    scan = scan_observed(source.path, source.data)
    cells = {name: _cells(scan, name) for name in scan.values}
    rows = [{name: values[i] for name, values in cells.items()} for i in range(len(scan.lines))]
    beside = Path(source.path).with_name(STEPS_NAME)
    steps = read_steps(Source(str(beside))) if beside.is_file() else []
    notes = list(failure_notes(rows))
    planned = Path(source.path).with_name(PLANNED)
    if "prompt" not in cells and planned.is_file():
        prompts = planned_prompts(planned)
        for row in rows:
            row["prompt"] = as_long_as(prompts.get(row["request_id"], ""), row["input_tokens"] or 0) or None
    shift = from_first(rows, steps)
    if shift:
        notes.append(f"times are shifted by {-shift:.6f} s: 0 is the first planned request.")
    if delays := late(rows):
        notes.append(f"the client sent up to {1e3 * delays[-1]:.3f} ms later than planned.")
    return [Measured(source.stem, rows, steps, tuple(notes), {})]


def recognises_steps(source: Source) -> bool:
    """Return whether a file is our steps.csv."""
    return {"duration_s", "num_sequences"} <= source.columns


def read_steps(source: Source) -> list[Row]:
    """Return the iterations of a steps.csv.

    Raises
    ------
    InputErrors
        All faults of its cells.
    """
    needed = {"duration_s": float, "num_sequences": int}
    rows = source.rows(needed)
    made = [{name: _number(source, line, name, row[name]) for name in STEP_COLUMNS if row.get(name) not in (None, "")}
            for line, row in rows]
    for (line, _), row in zip(rows, made):
        if not row.get("duration_s", 1.0) > 0.0:
            source.faults.add_cell(line, "duration_s", "a time above 0", str(row["duration_s"]))
    source.faults.raise_if_any()
    return made


def _number(source: Source, line: int, name: str, cell) -> float | None:
    try:
        return float(cell)
    except ValueError:
        source.faults.add_cell(line, name, "a number", cell)
        return None


def _cells(scan: Scan, name: str) -> list:
    """Return the cells of a column: seconds, counts, texts; None: empty."""
    kind, values = COLUMNS[name].kind, scan.values[name].tolist()
    if kind == Kind.SECONDS:
        return [None if value == MISSING else value * NS for value in values]
    if kind == Kind.INTEGER:
        return [None if value == MISSING else value for value in values]
    if kind == Kind.TEXT:
        return [None if value == MISSING else scan.texts[name][value] for value in values]
    return _prompts(scan, values)


def _prompts(scan: Scan, counts: list[int]) -> list[str | None]:
    """Return the cells of the column prompt, as they are in the file."""
    streams, tokens = (each.tolist() for each in scan.segments)
    cells, at = [], 0
    for count in counts:
        pieces = [f"{scan.texts['prompt'][streams[i]]}:{tokens[i]}" for i in range(at, at + max(count, 0))]
        cells.append("/".join(pieces) or None)
        at += max(count, 0)
    return cells
