"""One run in pieces: independent replicas are simulated separately, and their results are joined.

A piece is some replicas of the whole cluster. The process that serves a piece builds the whole cluster and places all
requests, as a whole run does, but serves only the requests of its replicas. So each request has exactly the times of
a whole run, and the rows written by the pieces, sorted by time, equal the rows of a whole run.
"""
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from simulator.assembly import assemble
from simulator.config.experiment import Experiment
from simulator.core.weighted_samples import WeightedSamples
from simulator.domain import records
from simulator.domain.run import Run, added_up
from simulator.errors import InputErrors
from simulator.results.growing_table import GrowingTable
from simulator.workload.base import Workload

ROWS_AT_ONCE = 1 << 16


class Stopped(Exception):
    """A run in pieces was asked to stop before all pieces were done."""


class Task(NamedTuple):
    """A piece to simulate.

    workload : requests in their initial state; simulation writes to them.
    first, last : replicas of the piece. wants_iterations, wants_tokens : rows to return.
    """

    experiment: Experiment
    workload: Workload
    first: int
    last: int
    wants_iterations: bool
    wants_tokens: bool


class Piece(NamedTuple):
    """Results of a piece; picklable.

    requests : structured array (requests,), `records.REQUEST`, of all requests; others are not served.
    run : the Run of the piece, without its unpicklable fields.
    iterations, tokens : rows of its replicas; empty if not requested.
    gaps_ns, weights : distinct inter-token gaps and their counts, int64 and int32.
    """

    task: Task
    run: dict[str, Any]
    requests: np.ndarray
    pool_cuts: np.ndarray | None
    iterations: np.ndarray
    tokens: np.ndarray
    gaps_ns: np.ndarray
    weights: np.ndarray


def tasks_of(prepared: assemble.Prepared, sink, count: int) -> list[Task]:
    """Return the pieces of a run, with replicas divided as evenly as possible.

    sink : receives the rows of the whole run. count : maximum number of pieces.

    Raises
    ------
    InputErrors
        The cluster cannot be split; the fault has the reason.
    """
    cluster = assemble.build(prepared, sink)
    reason = cluster.why_whole()
    if sink.streams:
        reason = f"[output] asks for {' and '.join(sink.streams)}"
    if reason is not None:
        raise InputErrors([f"{prepared.experiment.name}: cannot be cut into parts: {reason}"])
    replicas = len(cluster.replicas)
    count = min(count, replicas)
    bounds = [replicas * piece // count for piece in range(count + 1)]
    return [Task(prepared.experiment, prepared.workload, first, last, sink.wants_iterations, sink.wants_tokens)
            for first, last in pairwise(bounds)]


def serve(task: Task, monitor: Callable[[int, int], bool] | None = None) -> Piece:
    """Simulate one piece, in any process.

    monitor : as in `assemble.build`.
    """
    sink = _Kept(task.wants_iterations, task.wants_tokens)
    prepared = assemble.prepare(task.experiment, task.workload, has_met=True)
    run = assemble.build(prepared, sink, monitor, serves=(task.first, task.last)).run()
    fields = {name: getattr(run, name) for name in run.__struct_fields__ if name not in ("workload", "itl_ns", "parts")}
    return Piece(task._replace(experiment=None, workload=None), fields, run.workload.requests, run.workload.pool_cuts,
                sink.iteration_rows.rows(), sink.token_rows.rows(), *run.itl_ns.pairs())


def num_finished(piece: Piece) -> int:
    """Return how many requests of a piece completed, failed or were rejected."""
    return int((piece.requests["status"][_served(piece)] > records.RUNNING).sum())


def joined(pieces: Iterable[Piece], prepared: assemble.Prepared, sink) -> Run:
    """Return the run joined from the pieces, and pass their rows to the sink.

    Parameters
    ----------
    pieces : all pieces of the run, each complete.
    prepared : the whole run; the `requests` of its workload are written to.
    sink : takes iterations in order of time, and tokens.
    """
    pieces = sorted(pieces, key=lambda piece: piece.task.first)
    workload = prepared.workload
    workload.requests[:] = pieces[0].requests
    gaps, cuts, runs = WeightedSamples(), None, [piece.run for piece in pieces]
    for piece in pieces:
        rows = _served(piece)
        workload.requests[rows] = piece.requests[rows]
        gaps.observe_all(piece.gaps_ns, piece.weights.astype(np.int32))
        if piece.pool_cuts is not None:
            cuts = piece.pool_cuts if cuts is None else cuts | piece.pool_cuts
    workload.pool_cuts = cuts
    _pass_on([piece.iterations for piece in pieces], [piece.tokens for piece in pieces], sink)
    first = runs[0]
    return Run(**first | {
        "workload": workload, "parts": prepared.parts, "itl_ns": gaps, "complete": all(run["complete"] for run in runs),
        "stands_still": any(run["stands_still"] for run in runs),
        "clock_ns": max(run["clock_ns"] for run in runs),
        "replicas": _by_replica(pieces, "replicas"),
        "tables": {name: _rows_of(pieces, name) for name in first["tables"]},
        "executions": _by_request(pieces, "executions"),
        "columns": {name: _by_request(pieces, name, "columns") for name in first["columns"]},
        "counts": added_up(run["counts"] for run in runs), "diagnosis": _sentences(runs)})


class _Kept:
    """Sink that keeps the rows of a piece in memory."""

    streams = ()

    def __init__(self, wants_iterations: bool, wants_tokens: bool):
        self.wants_iterations, self.wants_tokens = wants_iterations, wants_tokens
        self.iteration_rows, self.token_rows = GrowingTable(records.ITERATION), GrowingTable(records.TOKEN)

    def iterations(self, rows: np.ndarray) -> None:
        """Take rows of `records.ITERATION`."""
        self.iteration_rows.append(rows)

    def tokens(self, rows: np.ndarray) -> None:
        """Take rows of `records.TOKEN`."""
        self.token_rows.append(rows)


def _served(piece: Piece) -> np.ndarray:
    replica = piece.requests["replica"]
    return np.flatnonzero((piece.task.first <= replica) & (replica < piece.task.last))


def _pass_on(iterations: list[np.ndarray], tokens: list[np.ndarray], sink) -> None:
    """Pass rows to the sink in blocks, iterations by start and replica, as a whole run writes them."""
    if sink.wants_iterations:
        rows = np.concatenate(iterations)
        order = np.lexsort((rows["replica"], rows["start_ns"]))         # stable: stages keep their order
        whole = rows.view(f"V{rows.dtype.itemsize}")                # padding bytes included
        for begin in range(0, len(rows), ROWS_AT_ONCE):
            sink.iterations(whole[order[begin:begin + ROWS_AT_ONCE]].view(rows.dtype))
    if sink.wants_tokens:
        for rows in tokens:
            for begin in range(0, len(rows), ROWS_AT_ONCE):
                sink.tokens(rows[begin:begin + ROWS_AT_ONCE])


def _by_replica(pieces: list[Piece], name: str) -> np.ndarray:
    whole = pieces[0].run[name].copy()
    for piece in pieces[1:]:
        whole[piece.task.first:piece.task.last] = piece.run[name][piece.task.first:piece.task.last]
    return whole


def _rows_of(pieces: list[Piece], table: str) -> np.ndarray:
    """Return the rows of a table with a column `replica`, those of each replica from its piece."""
    found = [piece.run["tables"][table] for piece in pieces]
    return np.concatenate([rows[(piece.task.first <= rows["replica"]) & (rows["replica"] < piece.task.last)]
                           for piece, rows in zip(pieces, found, strict=True)])


def _by_request(pieces: list[Piece], name: str, table: str = "") -> np.ndarray | None:
    found = [(piece.run[table] if table else piece.run)[name] for piece in pieces]
    if found[0] is None:
        return None
    whole = found[0].copy()
    for piece, values in zip(pieces[1:], found[1:], strict=True):
        rows = _served(piece)
        whole[rows] = values[rows]
    return whole


def _sentences(runs: list[dict]) -> list[str]:
    """Return the sentences on replicas, in order, then the sentences on the whole run, without duplicates."""
    of_replicas = [line for run in runs for line in run["diagnosis"] if line.startswith("replica ")]
    return of_replicas + list(dict.fromkeys(
        line for run in runs for line in run["diagnosis"] if not line.startswith("replica ")))
