"""The tables of results.h5: names and order of their fields, made from the engine's records.

A field of a record that the results do not show (`spare`) is zeroed, so that equal runs give equal bytes.
"""
from collections.abc import Mapping

import numpy as np

from simulator import registry
from simulator.domain import columns, records
from simulator.results.finish import finish_codes
from simulator.results.traits import COLUMNS

BLOCK_ROWS = 1 << 16

ITERATION_FIELDS = (
    "replica", "stage", "start_ns", "duration_ns", "sequences", "prefill_tokens", "decode_tokens", "context_tokens",
    "waiting", "running", "used_blocks", "preempted", "begin_ns", "rank",
    "padded_tokens", "encoder_tokens")
REQUEST_FIELDS = tuple(name for name in records.REQUEST.names if name != "spare")
LABEL_COLUMNS = columns.LABELS
SCRIPT_FIELDS, MEASURED = ("scheduled_arrival_ns", "client_queue_ns"), "measured"
JOURNEY_FIELDS = tuple(name for name in records.JOURNEY.names if name != "spare")
NO_REPLICA = -1


def why_absent(name: str) -> str:
    """Say why there is no table of that name."""
    if name == "legs":
        return "each request stayed at one replica, see /requests"
    owner = next((part for part in registry.parts() if name in part.tables), None)
    return owner.tables[name].why_absent if owner else f"[output] {name} was false"


def _shown(record: np.dtype, fields: tuple[str, ...]) -> np.dtype:
    """Return the layout of `record` with only `fields`, named in that order."""
    return np.dtype({
        "names": fields,
        "formats": [record[name] for name in fields],
        "offsets": [record.fields[name][1] for name in fields],
        "itemsize": record.itemsize,
    })


def without_spare(record: np.dtype) -> np.dtype:
    """Return the layout of a record as results have it."""
    return _shown(record, tuple(name for name in record.names if name != "spare"))


ITERATION = _shown(records.ITERATION, ITERATION_FIELDS)
REPLICA = without_spare(records.REPLICA)


def request_dtype(workload, journeys: np.ndarray | None = None,
                  traits: Mapping[str, np.ndarray] | None = None) -> np.dtype:
    """Return the type of a row of /requests.

    Ids are int64, or UTF-8 as long as the longest id.

    Parameters
    ----------
    workload : simulator.workload.base.Workload
    journeys : from `journeys_of`; without them there are no columns for them. Also in the functions below.
    traits : from `traits_of`.
    """
    request_ids = workload.request_ids
    is_text = len(request_ids) > 0 and isinstance(request_ids[0], str)
    id_type = f"S{max(1, max(len(name.encode()) for name in request_ids))}" if is_text else "i8"
    *times_and_counts, status = REQUEST_FIELDS
    fields = [("request_id", id_type)]
    fields += [(name, records.REQUEST[name]) for name in times_and_counts]
    fields += [("prefill_replica", "i4"), (status, records.REQUEST[status]), ("finish_reason", "i1"),
               ("priority", "i4")]
    fields += [(column, "i4") for column in LABEL_COLUMNS]
    if journeys is not None:
        fields += [(name, records.JOURNEY[name]) for name in JOURNEY_FIELDS]
    if workload.script is not None:
        fields += [(name, "i8") for name in SCRIPT_FIELDS]
    if workload.measured is not None:
        fields += [(MEASURED, "i1")]
    fields += [(name, COLUMNS.get(name) or values.dtype) for name, values in (traits or {}).items()
               if name != "prefill_replica"]       # which is always there
    return np.dtype(fields)


def request_rows(workload, dtype: np.dtype, journeys: np.ndarray | None = None, part: slice = slice(None),
                 traits: Mapping[str, np.ndarray] | None = None) -> np.ndarray:
    """Return a part of the rows of /requests, in arrival order.

    Parameters
    ----------
    workload : simulator.workload.base.Workload
    dtype : from `request_dtype` for its ids, the journeys and the traits.
    traits : from `traits_of`.
    """
    requests, demands = workload.requests[part], workload.demands[part]
    rows = np.empty(len(requests), dtype)
    ids = workload.request_ids[part]
    rows["request_id"] = ids if dtype["request_id"].kind == "i" else [name.encode() for name in ids]
    for name in REQUEST_FIELDS:
        rows[name] = requests[name]
    rows["prefill_replica"] = NO_REPLICA
    rows["finish_reason"] = finish_codes(workload, journeys, part)
    rows["priority"] = demands["priority"]
    for column in LABEL_COLUMNS:
        rows[column] = demands[column]
    if journeys is not None:
        for name in JOURNEY_FIELDS:
            rows[name] = journeys[name][part]
    if workload.script is not None:
        scheduled_ns = workload.scheduled_ns[part]
        rows["scheduled_arrival_ns"] = scheduled_ns
        rows["client_queue_ns"] = np.where(scheduled_ns < 0, 0, requests["arrival_ns"] - scheduled_ns)
    if workload.measured is not None:
        rows[MEASURED] = workload.measured[part]
    for name, values in (traits or {}).items():
        rows[name] = values[part]
    return rows


def with_text_ids(rows: np.ndarray) -> np.ndarray:
    """Return /requests with str in place of UTF-8, where ids are text."""
    if rows.dtype["request_id"].kind != "S":
        return rows
    text = np.char.decode(rows["request_id"], "utf-8")
    others = rows.dtype.names[1:]
    decoded = np.empty(len(rows), [("request_id", text.dtype), *((name, rows.dtype[name]) for name in others)])
    decoded["request_id"] = text
    for name in others:
        decoded[name] = rows[name]
    return decoded


def replica_rows(replicas: np.ndarray) -> np.ndarray:
    """Return /replicas."""
    return replicas.view(REPLICA)


def shown(rows: np.ndarray) -> np.ndarray:
    """Return rows of a table as results have them."""
    if "spare" not in rows.dtype.names:
        return rows
    rows = rows.copy()
    rows["spare"] = 0
    return rows.view(without_spare(rows.dtype))


def further(run) -> dict[str, np.ndarray]:
    """Return the tables that are complete at the end of a run, and optional."""
    found = {"lifecycle": run.lifecycle, "legs": run.legs} | run.tables
    found = {name: shown(rows) for name, rows in found.items() if rows is not None}
    return {name: found[name] for name in (*columns.TABLES, *found) if name in found}
