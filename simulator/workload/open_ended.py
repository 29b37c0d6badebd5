"""Loads that only their end bounds: the number of plays that each group of slots needs is known only after the run.

So a run without results serves more plays than needed; then each group gets the number of plays that it used. Draws
do not depend on the number of plays, so that both runs are equal.
"""
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from simulator.workload.base import Workload
from simulator.workload.column_options import FIRST_GUESS
from simulator.workload.columns import Columns, first_rows, reordered
from simulator.workload.script import Edges, Script


class Enough(NamedTuple):
    """The number of plays that open-ended groups need.

    guess : plays drawn for each slot.
    counts : plays used by each group of the script; None: all that are drawn.
    """

    guess: int = FIRST_GUESS
    counts: tuple[int, ...] | None = None


ENOUGH = Enough()


def first_plays(columns: Columns, script: Script, counts: Sequence[int]) -> tuple[Columns, Script]:
    """Return requests and script with as many plays as each open-ended group needs.

    columns : in the order of the script, which holds their dependencies and clients.
    counts : plays to keep, by group; values of groups that are not open-ended are ignored.
    """
    groups = [replace(group, plays=group.plays[:count], is_open_ended=False, is_counted=True)
              if group.is_open_ended else group for group, count in zip(script.groups, counts, strict=True)]
    is_kept = np.zeros(len(script.start_ns), bool)
    for group in groups:
        is_kept[group.plays] = True
    sizes = np.ones(len(is_kept), np.int64) if script.play_begins is None else np.diff(script.play_begins)
    stays = np.repeat(is_kept, sizes)
    play, row = np.cumsum(is_kept) - 1, np.cumsum(stays) - 1        # new indices
    order = np.concatenate([np.flatnonzero(stays), np.flatnonzero(~stays)])
    columns = replace(columns, waits=None, clients=None)
    columns = first_rows(replace(reordered(columns, order), most=int(stays.sum())))
    return columns, replace(
        script, groups=tuple(replace(group, plays=play[group.plays]) for group in groups),
        start_ns=script.start_ns[is_kept], edges=script.edges and _edges(script.edges, stays, row),
        play_begins=None if script.play_begins is None else np.append(0, np.cumsum(sizes[is_kept])),
        **{name: None if getattr(script, name) is None else getattr(script, name)[stays]
           for name in ("offset_ns", "rest_ns", "rest_share", "timeout_ns")})


def last_sent_ns(workload: Workload, are_dry: Sequence[bool]) -> dict[int, int]:
    """Return when the last request came of each open-ended group without plays left."""
    script, arrival_ns = workload.script, workload.requests["arrival_ns"]
    sizes = np.ones(len(script.start_ns), np.int64) if script.play_begins is None else np.diff(script.play_begins)
    play_of = np.repeat(np.arange(len(sizes)), sizes)
    return {index: int(arrival_ns[np.isin(play_of, group.plays)].max())
            for index, (group, is_dry) in enumerate(zip(script.groups, are_dry, strict=True))
            if is_dry and group.is_open_ended}


def _edges(edges: Edges, stays: np.ndarray, row: np.ndarray) -> Edges:
    kept = stays[edges.sources] & stays[edges.targets]
    return Edges(row[edges.sources[kept]], row[edges.targets[kept]], edges.delays_ns[kept], edges.from_dispatch[kept],
                 None if edges.from_any_end is None else edges.from_any_end[kept])
