"""From the section [workload] of an experiment to the requests."""
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.domain import records
from simulator.domain.load import Stage
from simulator.errors import InputErrors, KeyFault
from simulator.workload.adapters import with_adapters
from simulator.workload.base import Workload
from simulator.workload.columns import Columns, first_rows, reordered
from simulator.workload.images import with_images
from simulator.workload.lowering import workload_of
from simulator.workload.output_knowledge import with_knowledge
from simulator.workload.stages import StagePlan, plan_stages
from simulator.workload.wanted import Wanted

FIRST_GUESS = 64            # plays for each slot of a closed loop that a duration bounds


class Enough(NamedTuple):
    """How many plays the stages of an open-ended load need.

    guess : drawn for each slot of a stage that only its duration bounds.
    counts : of these, used by each stage; None: all.
    """

    guess: int = FIRST_GUESS
    counts: tuple[int, ...] | None = None


def load(section, seed: int, enough: Enough = Enough()) -> Workload:
    """Read or draw the requests of an experiment.

    Parameters
    ----------
    section : simulator.config.experiment.Workload.
    seed : of the experiment; traces have no use for it.
    enough : a closed loop that only a duration bounds is served with a guess first, then with what it used.

    Raises
    ------
    InputErrors
        A file that cannot be read, with every fault by line; parameters that lead to no valid workload.
    """
    source, streams = registry.load("workload", section.type)(section.parameters), RandomStreams(seed)
    given, parameters = section.load, section.parameters
    duration_s = getattr(parameters, "duration_s", None)
    is_open_ended = any(stage.num_requests is None and stage.concurrency is not None for stage in given.stages)
    stages = plan_stages(given.stages, streams.generator, enough.guess)
    if given.mode == "concurrency" and hasattr(parameters, "num_requests") and parameters.num_requests is None:
        if duration_s is None:
            raise InputErrors([KeyFault("workload: a closed loop needs num_requests, duration_s, or both")])
        stage = Stage(concurrency=given.concurrency, duration_s=duration_s)
        stages, is_open_ended = plan_stages((stage,), streams.generator, enough.guess), True
    columns = source.columns(streams, Wanted(given.mode == "timestamps", sum(plan.count for plan in stages)))
    columns = with_adapters(with_images(columns, section.images, streams), section.adapters, seed)
    columns = with_knowledge(columns, section.output_knowledge, seed)
    if stages:
        stages, columns = _used(stages, columns, enough.counts)
    built = workload_of(columns, given, duration_s, streams, stages if given.mode == "stages" else ())
    if not section.cancel_at_deadline:
        built = _patient(built)
    return replace(built, is_open_ended=is_open_ended and enough.counts is None)


def _patient(workload: Workload) -> Workload:
    """Return the requests of clients who wait on when the answer is late.

    Raises
    ------
    InputErrors
        Nobody wants the answer by some time.
    """
    script = workload.script
    if not np.any(workload.demands["due_ns"] >= 0) and (script is None or script.timeout_ns is None):
        raise InputErrors([KeyFault("workload.cancel_at_deadline: no request of this workload has a deadline; leave it "
                                    "out")])
    if script is None or script.cancel_ns is None:
        workload.demands["deadline_ns"] = records.NEVER_NS
    return replace(workload, script=script and replace(script, waits_on=True))


def _used(stages: list[StagePlan], columns: Columns, counts: tuple[int, ...] | None) -> tuple[list, Columns]:
    """Return the stages and the plays that they use.

    Raises
    ------
    InputErrors
        The workload has too few plays.
    """
    order = np.arange(len(columns)) if columns.waits is None else np.argsort(
        np.unique(columns.waits.plays, return_index=True)[1], kind="stable")
    total = sum(plan.count for plan in stages)
    if total > len(order):
        raise InputErrors([KeyFault(
            f"workload.load.stages: they need {total} requests or sessions, the workload has {len(order)}")])
    counts = counts or tuple(plan.count for plan in stages)
    firsts = np.cumsum([0, *(plan.count for plan in stages)])
    used = np.concatenate([order[first:first + count] for first, count in zip(firsts, counts, strict=False)])
    is_used = np.zeros(len(order), bool)
    is_used[used] = True
    rows_used = is_used if columns.waits is None else is_used[columns.waits.plays]
    rows = np.concatenate([np.flatnonzero(rows_used), np.flatnonzero(~rows_used)])
    columns = first_rows(replace(reordered(columns, rows), most=int(rows_used.sum())))
    return [plan._replace(count=count, start_ns=plan.start_ns[:count])
            for plan, count in zip(stages, counts, strict=True)], columns
