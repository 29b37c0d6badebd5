"""event_trace.json: Vidur's log of events, one line of a JSON list each, in order of time.

A request arrives and is sent to a replica, again after a hand-over, a move or a failure; a batch is formed, reaches
each pipeline stage, is begun there and ends, the last stage ends the batch. Events of one instant are in causal
order. Left out are events of Vidur that do nothing: a schedule that forms no batch, a stage
that is busy. `event_type` is the class of the event, which is null in Vidur itself, where writing the file fails.

Source: microsoft/vidur 7d47513, vidur/events, `to_dict` of each class, and vidur/simulator.py.
"""
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from simulator.domain import records
from simulator.results.export.batches import Batches
from simulator.results.export.requests import SECOND
from simulator.results.export.source import Source
from simulator.results.export.text import blocks

FILE = "event_trace.json"
(ARRIVAL, ROUTED, STAGE_END, BATCH_END, FORMED, STAGE_ARRIVAL, STAGE_BEGIN, STAGE_END_AT_ONCE,
 BATCH_END_AT_ONCE) = range(9)      # in order of one instant; the last two are of stages that take no time
NAMES = ("RequestArrivalEvent", "GlobalScheduleEvent", "BatchStageEndEvent", "BatchEndEvent", "ReplicaScheduleEvent",
         "BatchStageArrivalEvent", "ReplicaStageScheduleEvent", "BatchStageEndEvent", "BatchEndEvent")
EVENT = np.dtype([("time_ns", "i8"), ("kind", "i1"), ("replica", "i4"), ("of", "i8")])     # request, or iteration


def write_event_trace(source: Source, batches: Batches, folder: Path, show: Callable[[int], None]) -> None:
    """Write the file; `show` is called with the number of events written."""
    events = np.concatenate([*_of_requests(source), *_of_batches(source.iterations, batches)])
    events = events[np.argsort(events, order=("time_ns", "kind", "replica", "of"), kind="stable")]
    vidur = VidurEvents(source, batches)
    with open(folder / FILE, "w", encoding="utf-8", newline="\n") as file:
        file.write("[")
        for part in blocks(len(events)):
            texts = [json.dumps(vidur.event(*event), ensure_ascii=False) for event in events[part].tolist()]
            file.write((",\n" if part.start else "\n") + ",\n".join(texts))
            show(len(texts))
        file.write("\n]\n" if len(events) else "]\n")


def _events(kind: int | np.ndarray, time_ns: np.ndarray, replica: np.ndarray | int, of: np.ndarray) -> np.ndarray:
    rows = np.empty(len(time_ns), EVENT)
    rows["time_ns"], rows["kind"], rows["replica"], rows["of"] = time_ns, kind, replica, of
    return rows


def _of_requests(source: Source) -> Iterator[np.ndarray]:
    requests, places = source.requests, np.arange(len(source.requests))
    yield _events(ARRIVAL, requests["arrival_ns"], -1, places)
    if source.legs is not None:
        yield _events(ROUTED, source.legs["sent_ns"], source.legs["replica"], source.legs["request"])
        return
    sent_ns = requests["dispatched_ns" if "dispatched_ns" in requests.dtype.names else "arrival_ns"]
    is_sent = (requests["replica"] >= 0) & (sent_ns != records.NEVER_NS)
    yield _events(ROUTED, sent_ns[is_sent], requests["replica"][is_sent], places[is_sent])


def _of_batches(iterations: np.ndarray, batches: Batches) -> Iterator[np.ndarray]:
    replica, end_ns = iterations["replica"], iterations["begin_ns"] + iterations["duration_ns"]
    at_once = iterations["duration_ns"] == 0
    first, rows = batches.first_rows, np.arange(len(iterations))
    yield _events(FORMED, iterations["start_ns"][first], replica[first], first)
    yield _events(STAGE_ARRIVAL, iterations["start_ns"], replica, rows)
    yield _events(STAGE_BEGIN, iterations["begin_ns"], replica, rows)
    yield _events(np.where(at_once, STAGE_END_AT_ONCE, STAGE_END), end_ns, replica, rows)
    last = np.flatnonzero(batches.is_last_stage)
    yield _events(np.where(at_once, BATCH_END_AT_ONCE, BATCH_END)[last], end_ns[last], replica[last], last)


class VidurEvents:
    """Events in Vidur's form."""

    def __init__(self, source: Source, batches: Batches):
        self._ids = source.requests["request_id"].tolist()
        self._stage, self._number = source.iterations["stage"], batches.number
        self._is_last = batches.is_last_stage

    def event(self, time_ns: int, kind: int, replica: int, of: int) -> dict[str, Any]:
        """Return one event; `of`: the row of its request, or of /iterations."""
        head = {"time": time_ns / SECOND, "event_type": NAMES[kind]}
        if kind == ARRIVAL:
            return head | {"request": self._ids[of]}
        if kind == ROUTED:
            return head | {"replica_set": [replica], "request_mapping": [[replica, self._ids[of]]]}
        batch = int(self._number[of])
        number = batch if batch >= 0 else None          # its first stage is not in the table
        if kind == FORMED:
            return head | {"replica_id": replica, "batch_ids": [number]}
        if NAMES[kind] == "BatchEndEvent":
            return head | {"batch_id": number}
        stage = head | {"replica_id": replica, "stage_id": int(self._stage[of]), "batch_id": number}
        if kind == STAGE_ARRIVAL:
            return stage
        return stage | {"batch_stage_id": of, "is_last_stage": bool(self._is_last[of])}
