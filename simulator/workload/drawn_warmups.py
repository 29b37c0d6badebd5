"""Warm-up requests drawn separately, sent before the workload: [workload.warmup] stage."""
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from simulator.domain import records
from simulator.workload.columns import LABELS, Columns, Prompts
from simulator.workload.limits import MISSING
from simulator.workload.script import Script
from simulator.workload.stages import StagePlan, group_of
from simulator.workload.warmup import before_all


class Warmups(NamedTuple):
    """Requests without dependencies, and their arrival plan.

    columns : None: the stage has none.
    """

    columns: Columns | None
    plan: StagePlan


def with_drawn(columns: Columns, script: Script, warmups: Warmups) -> tuple[Columns, Script]:
    """Return the requests, followed by the warm-up requests in the table.

    The measured requests begin when all warm-up requests have ended.
    """
    if warmups.columns is None:
        note = f"workload.warmup.stage: no request comes in {warmups.plan.stage.duration_s:g} s of it."
        return replace(columns, notes=(*columns.notes, note)), _later(script, warmups.plan)
    count = len(warmups.columns)
    start_ns = warmups.plan.start_ns[:count]
    columns = _appended(columns, _behind(columns, warmups.columns))
    return columns, before_all(
        columns, script, np.ones(count, np.int64), group_of(warmups.plan, np.arange(count)), start_ns)


def _later(script: Script, plan: StagePlan) -> Script:
    """Return a script that begins when a stage without requests is over."""
    stage_ns = group_of(plan, np.empty(0, np.int64)).interval_ns + plan.lasts_ns
    return replace(script, groups=tuple(
        replace(group, interval_ns=group.interval_ns + stage_ns * (group.after < 0)) for group in script.groups))


def _behind(columns: Columns, warmups: Columns) -> Columns:
    """Return warm-up requests with their streams renumbered for rows behind `columns`.

    Streams in `columns` may have numbers beyond its rows, if requests were left out.
    """
    if warmups.prompts is None:
        return warmups
    streams = warmups.prompts.streams.copy()
    others = np.empty(0, np.int64) if columns.prompts is None else columns.prompts.streams
    others = others[others & 3 != records.named_stream(0)] >> 2
    is_own = streams & 3 != records.named_stream(0)
    streams[is_own] += max(len(columns), int(others.max(initial=-1)) + 1) << 2
    return replace(warmups, prompts=replace(warmups.prompts, streams=streams))


def _appended(columns: Columns, warmups: Columns) -> Columns:
    """Return one table; a column that only one table has is filled with its value for not given."""
    count = len(warmups)

    def joined(name, missing):
        one, other = getattr(columns, name), getattr(warmups, name)
        if one is None and other is None:
            return None
        return np.append(_filled(one, len(columns), missing), _filled(other, count, missing))

    ids = columns.request_ids
    ids = [*ids, *(f"warmup {number}" for number in range(count))] if isinstance(ids, list) else np.append(
        ids, -1 - np.arange(count))
    labels, facts = {}, {}
    for column in LABELS:
        (one, names), (other, more) = columns.labels.get(column, (None, [])), warmups.labels.get(column, (None, []))
        if one is not None or other is not None:        # both lists of names are equal, or one is empty
            labels[column] = (np.append(_filled(one, len(columns), -1), _filled(other, count, -1)), names or more)
    for fact in {*columns.facts, *warmups.facts}:
        facts[fact] = np.append(_filled(columns.facts.get(fact), len(columns), MISSING),
                                _filled(warmups.facts.get(fact), count, MISSING))
    return replace(
        columns, request_ids=ids, arrival_ns=joined("arrival_ns", 0), prompt_tokens=joined("prompt_tokens", 0),
        output_tokens=joined("output_tokens", 0), priority=joined("priority", 0),
        max_tokens=joined("max_tokens", MISSING), expected_tokens=joined("expected_tokens", -1),
        timeout_ns=joined("timeout_ns", MISSING), waits=None, clients=None, labels=labels, facts=facts,
        prompts=_joined(columns, warmups), notes=(*columns.notes, *warmups.notes))


def _joined(columns: Columns, warmups: Columns) -> Prompts | None:
    if columns.prompts is None and warmups.prompts is None:
        return None
    one, other = (each.prompts or Prompts(np.zeros(len(each), np.int64), *np.zeros((2, 0), np.int64))
                  for each in (columns, warmups))
    return Prompts(*(np.append(getattr(one, name), getattr(other, name)) for name in Prompts.__struct_fields__))


def _filled(values: np.ndarray | None, count: int, missing: int) -> np.ndarray:
    return np.full(count, missing) if values is None else values
