"""Conversion of columns to the engine's records."""
import numpy as np

from simulator.domain import records
from simulator.errors import InputErrors, KeyFault
from simulator.workload.base import Workload
from simulator.workload.columns import LABELS, Columns, Prompts
from simulator.workload.items import items_in
from simulator.workload.limits import MAX_TOKENS, MISSING


def build_workload(columns: Columns) -> Workload:
    """Return the requests, in the given order, in the engine's form.

    Segments may name streams of requests beyond `most`; no row has those requests, but equal streams still match.
    """
    n = min(columns.most or len(columns), len(columns))
    requests = np.zeros(n, records.REQUEST)
    requests["arrival_ns"] = columns.arrival_ns[:n]
    for time in ("enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns"):
        requests[time] = records.NEVER_NS
    requests["prompt_tokens"] = columns.prompt_tokens[:n]
    requests["replica"] = -1
    outcomes = np.empty(n, records.OUTCOME)
    outcomes["output_tokens"] = columns.output_tokens[:n]
    segments, begins, counts = _segments(columns.prompts, n)
    demands = _demands(columns, n)
    demands["segments_begin"] = begins
    demands["num_segments"] = counts
    return Workload(
        requests=requests, demands=demands, outcomes=outcomes, segments=segments,
        request_ids=columns.request_ids[:n],
        labels={column: list(names) for column, (codes, names) in columns.labels.items()}, notes=columns.notes,
        facts={column: values[:n] for column, values in columns.facts.items() if column != "predicted_tokens"},
        items=items_in(columns, n),
        prompts_use_outputs=bool(np.any(segments["stream"] & 3 == records.output_stream(0))))


def _demands(columns: Columns, n: int) -> np.ndarray:
    demands = np.zeros(n, records.DEMAND)
    limits = columns.output_tokens[:n]
    if columns.max_tokens is not None:
        limits = np.where(columns.max_tokens[:n] == MISSING, limits, columns.max_tokens[:n])
    demands["max_tokens"] = np.maximum(limits, 1)
    demands["deadline_ns"] = demands["due_ns"] = records.NEVER_NS
    if columns.timeout_ns is not None:
        given = columns.timeout_ns[:n] != MISSING
        longest = np.iinfo(np.int64).max - columns.arrival_ns[:n]
        instants = columns.arrival_ns[:n] + np.minimum(columns.timeout_ns[:n], longest)
        demands["deadline_ns"] = demands["due_ns"] = np.where(given, instants, records.NEVER_NS)
    if columns.priority is not None:
        demands["priority"] = columns.priority[:n]
    demands["expected_tokens"] = -1 if columns.expected_tokens is None else columns.expected_tokens[:n]
    demands["tie_rank"] = _ranks(columns.request_ids[:n])
    for label in LABELS:
        demands[label] = columns.labels[label][0][:n] if label in columns.labels else -1
    return demands


def _ranks(ids) -> np.ndarray:
    """Return the place of each request when sorted by id: texts as text, integers by value."""
    if isinstance(ids, np.ndarray):
        if np.all(ids[1:] > ids[:-1]):
            return np.arange(len(ids))
        order = np.argsort(ids, kind="stable")
    else:
        order = sorted(range(len(ids)), key=ids.__getitem__)
    ranks = np.empty(len(ids), dtype=np.int64)
    ranks[order] = np.arange(len(ids))
    return ranks


def _segments(prompts: Prompts | None, n: int) -> tuple:
    """Return the segment table, and the index of each request's first segment and its number of segments."""
    if prompts is None:
        return np.empty(0, records.SEGMENT), 0, 0
    counts = prompts.num_segments[:n]
    ends = np.cumsum(counts)
    total = int(ends[-1])
    if total > MAX_TOKENS:
        raise InputErrors([KeyFault(f"workload: the prompts have {total} segments, at most {MAX_TOKENS} are possible")])
    segments = np.empty(total, records.SEGMENT)
    segments["stream"] = prompts.streams[:total]
    segments["num_tokens"] = prompts.num_tokens[:total]
    return segments, ends - counts, counts
