"""Loads that nothing but their end bounds: how many plays each group of slots needs is known when all is over.

So more than enough are drawn first and served without results; then each group gets the plays that it used. What is
drawn does not depend on how many there are, so that both runs are the same.
"""
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from simulator.workload.base import Workload
from simulator.workload.columns import Columns, first_rows, reordered
from simulator.workload.script import Edges, Script
from simulator.workload.wanted import FIRST_GUESS


class Enough(NamedTuple):
    """How many plays open-ended groups need.

    guess : drawn for each slot.
    counts : of these, used by each group of the script; None: all.
    """

    guess: int = FIRST_GUESS
    counts: tuple[int, ...] | None = None


ENOUGH = Enough()


def first_plays(columns: Columns, script: Script, counts: Sequence[int]) -> tuple[Columns, Script]:
    """Return requests and script with as many plays as each open-ended group needs.

    columns : in the order of the script, which says who waits for whom, and who sends what.
    counts : plays to be kept, by group; those of others do not count.
    """
    groups = [replace(group, plays=group.plays[:count], is_open_ended=False) if group.is_open_ended else group
              for group, count in zip(script.groups, counts, strict=True)]
    is_kept = np.zeros(len(script.start_ns), bool)
    for group in groups:
        is_kept[group.plays] = True
    sizes = np.ones(len(is_kept), np.int64) if script.play_begins is None else np.diff(script.play_begins)
    stays = np.repeat(is_kept, sizes)
    play, row = np.cumsum(is_kept) - 1, np.cumsum(stays) - 1        # their new numbers
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
    """Return when the last request of each open-ended group came that had too few."""
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
