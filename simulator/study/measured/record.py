"""The output of every reader of measurements: rows of observed.csv and steps.csv."""
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from simulator.workload.formats.observed_columns import COLUMNS

OK, FAILED = "ok", "failed"
REQUEST_COLUMNS = (*COLUMNS, "prompt")
# The columns of steps.csv, one row an iteration of the engine. An empty cell was not measured.
STEP_COLUMNS = (
    "start_s",              # when it was scheduled, after the first planned request
    "duration_s",           # until its result was available
    "num_sequences",        # in the batch
    "num_prefills",         # sequences in the batch that compute prompts
    "prefill_tokens",       # of prompts
    "decode_tokens",
    "context_tokens",       # in KV, of all sequences in the batch, after it
    "running",              # requests in the engine, when it was scheduled
    "waiting",
    "prefill_context_tokens",   # in KV before it, of the sequences that compute prompts; part of context_tokens
    "kv_cache_usage",       # used share of the KV cache, 0 to 1
)
Row = dict[str, Any]        # column -> value; None or missing: not measured


class Measured(NamedTuple):
    """A set of measurements.

    name : of its folder, where there are several sets.
    requests, steps : rows; times are seconds.
    notes : shifts, drops and gaps in the data, a sentence each.
    about : facts in the source: engine, version, date, machine.
    """

    name: str
    requests: list[Row]
    steps: list[Row]
    notes: tuple[str, ...] = ()
    about: Mapping[str, str] = {}


def from_first(rows: list[Row], steps: list[Row] = ()) -> float:
    """Make times relative to the first planned request.

    Without planned times they are relative to the first request sent.

    Returns
    -------
    float
        The time that was subtracted; 0 where no time is known.
    """
    zero = min(_known(rows, "planned_s") or _known(rows, "sent_s") or [0.0])
    for row in rows:
        for column in ("planned_s", "sent_s"):
            if row.get(column) is not None:
                row[column] = round(row[column] - zero, 9)
    for row in steps:
        if row.get("start_s") is not None:
            row["start_s"] = round(row["start_s"] - zero, 9)
    return zero


def _known(rows: Iterable[Row], column: str) -> list[float]:
    return [row[column] for row in rows if row.get(column) is not None]


def late(rows: list[Row]) -> list[float]:
    """Return by how much requests were sent later than planned, seconds, ascending.

    Only requests with both times count.
    """
    return sorted(row["sent_s"] - row["planned_s"] for row in rows
                  if row.get("sent_s") is not None and row.get("planned_s") is not None)


def span(later: float | None, earlier: float | None) -> float | None:
    """Return the time between two instants, to the nanosecond; None: not known."""
    return None if later is None or earlier is None else round(later - earlier, 9)


def counted(count: int, what: str) -> str:
    """Return a count with its noun: `1 request`, `2 requests`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def failure_notes(rows: list[Row]) -> tuple[str, ...]:
    """Return a sentence on requests that were not answered."""
    kinds: dict[str, int] = {}
    for row in rows:
        if row["status"] != OK:
            kinds[row["status"]] = kinds.get(row["status"], 0) + 1
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return (f"{sum(kinds.values())} of {counted(len(rows), 'request')} were not answered: {counts}.",) if kinds else ()
