"""From the section [workload] of an experiment to the requests."""
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.domain import records
from simulator.domain.load import Load, Stage
from simulator.errors import InputErrors, KeyFault
from simulator.workload.adapters import with_adapters
from simulator.workload.base import Workload
from simulator.workload.columns import Columns, first_rows, reordered
from simulator.workload.images import with_images
from simulator.workload.lowering import workload_of
from simulator.workload.output_knowledge import with_knowledge
from simulator.workload.recycling import repeated
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


ENOUGH = Enough()


def load(section, seed: int, enough: Enough = ENOUGH,
         longest_text: Callable[[], int] | None = None) -> Workload:
    """Read or draw the requests of an experiment.

    Parameters
    ----------
    section : simulator.config.experiment.Workload.
    seed : of the experiment; traces have no use for it.
    enough : a closed loop that only a duration bounds is served with a guess first, then with what it used.
    longest_text : returns max_model_len, for those who want to know.

    Raises
    ------
    InputErrors
        A file that cannot be read, with every fault by line; parameters that lead to no valid workload.
    """
    source, streams = registry.load("workload", section.type)(section.parameters), RandomStreams(seed)
    given, parameters = section.load, section.parameters
    duration_s = getattr(parameters, "ends_s", getattr(parameters, "duration_s", None))
    bounded = getattr(parameters, "num_sessions" if hasattr(parameters, "num_sessions") else "num_requests", 1)
    open_ended = [stage.num_requests is None and stage.concurrency is not None for stage in given.stages]
    stages = plan_stages(given.stages, streams.generator, enough.guess)
    if given.mode == "concurrency" and bounded is None and duration_s is not None:
        stage = Stage(concurrency=given.concurrency, duration_s=duration_s)
        stages, open_ended = plan_stages((stage,), streams.generator, enough.guess), [True]
    wanted = Wanted(given.mode == "timestamps", sum(plan.count for plan in stages), longest_text)
    columns = source.columns(streams, wanted)
    if given.recycle:
        columns = _recycled(columns, given, duration_s, enough)
        open_ended = [not columns.most] * (1 if given.assign == "dynamic" else given.lanes)
    columns = with_adapters(with_images(columns, section.images, streams), section.adapters, seed)
    columns = with_knowledge(columns, section.output_knowledge, seed)
    if stages:
        stages, columns = _used(stages, columns, enough.counts)
    built = workload_of(columns, section, duration_s, streams, stages if given.mode == "stages" else ())
    if getattr(getattr(parameters, "sessions", None), "on_reject", "end") == "continue":
        if built.script is None or built.script.edges is None:
            raise InputErrors([KeyFault(
                "workload.sessions.on_reject: no request of this workload waits for another; leave it out")])
        built = replace(built, script=replace(built.script, goes_on_after_rejection=True))
    if not section.cancel_at_deadline:
        built = _patient(built)
    is_settled = enough.counts is not None or not any(open_ended)
    return replace(built, open_ended=() if is_settled else tuple(open_ended))


def _recycled(columns: Columns, given: Load, duration_s: float | None, enough: Enough) -> Columns:
    """Return plays that come again until the end of the load, as far as that is known."""
    if columns.most:
        return repeated(columns, columns.most)
    if duration_s is None:
        raise InputErrors([KeyFault("workload.load.recycle: plays come again until duration_s or max_requests, and the "
                                    "workload has neither")])
    columns = repeated(columns, enough.guess * given.lanes)
    if enough.counts is None:
        return columns
    counts = enough.counts          # of each lane; play i is in lane i mod lanes where there are several groups
    last = max(lane + (count - 1) * len(counts) for lane, count in enumerate(counts))
    plays = 1 + max(int(columns.waits.plays.max()) if columns.waits is not None else len(columns) - 1, 0)
    plan = StagePlan(None, plays, np.zeros(plays, np.int64))
    return _used([plan], columns, (min(last + 1, plays),))[1]


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
    if script is None or not script.cancels:
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
