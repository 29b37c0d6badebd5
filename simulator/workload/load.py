"""Requests of the section [workload] of an experiment, read or drawn."""
import math
from collections.abc import Callable, Iterable

import numpy as np
from msgspec.structs import replace

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.domain import records
from simulator.domain.load import Load
from simulator.errors import InputErrors, KeyFault
from simulator.workload.base import Workload
from simulator.workload.budgets import with_budgets
from simulator.workload.column_options import FIRST_GUESS, ColumnOptions
from simulator.workload.columns import Columns, first_rows, reordered
from simulator.workload.drawn_warmups import Warmups
from simulator.workload.images import with_images
from simulator.workload.lowering import workload_of
from simulator.workload.open_ended import ENOUGH, Enough
from simulator.workload.output_knowledge import with_knowledge
from simulator.workload.private_prefixes import with_private_prefixes
from simulator.workload.recycling import repeated
from simulator.workload.stages import MAX_REQUESTS, StagePlan, notes_on_empty, plan_stage, plan_stages
from simulator.workload.videos import with_videos


def load(section, seed: int, enough: Enough = ENOUGH, longest_text: Callable[[], int] | None = None,
         tower_for: Callable | None = None, parts: Iterable = ()) -> Workload:
    """Read or draw the requests of an experiment.

    Parameters
    ----------
    section : simulator.config.experiment.Workload.
    seed : of the experiment; traces do not use it.
    enough : number of plays for a closed loop that only its end bounds: a guess first, then the number that it used.
    longest_text : returns max_model_len; called only by workloads that need it. tower_for : see `with_images`; the
        same.
    parts : assembly.parts.base.Part, which add to the requests.

    Raises
    ------
    InputErrors
        A file that cannot be read, with every fault by line; parameters that lead to no valid workload.
    """
    source, streams = registry.load("workload", section.type)(section.parameters), RandomStreams(seed)
    given, parameters = section.load, section.parameters
    duration_s = getattr(parameters, "ends_s", getattr(parameters, "duration_s", None))
    bounded = getattr(parameters, "num_sessions" if hasattr(parameters, "num_sessions") else "num_requests", 1)
    stages = plan_stages(given.stages, streams.generator, enough.guess)
    empty = notes_on_empty(stages)
    slots = 0 if given.recycle else given.concurrency or given.lanes or 0
    is_guess = slots > 0 and bounded is None and duration_s is not None
    count = enough.guess * slots if is_guess else sum(plan.count for plan in stages)
    if given.mode == "user_rate" and bounded is None and duration_s is not None:
        count = _due(given, duration_s, hasattr(parameters, "num_sessions"))
    if is_guess:
        _check_guess(section)
    longest = longest_text and (lambda: longest_text() - given.private_prefix_tokens)
    columns = replace(source.columns(streams, ColumnOptions(
        given.mode == "timestamps", count, longest, enough.guess, given.max_in_flight > 0)), is_guess=is_guess)
    columns = replace(columns, notes=(*columns.notes, *empty))
    if is_guess:
        _check_plays(columns, count)
    if not math.isinf(given.tree_idle_cap_s):
        _check_idle_cap(columns)
    if given.recycle:
        columns = _recycled(columns, given, duration_s, enough.guess)
    columns = with_videos(with_images(columns, section.images, streams, tower_for), section.videos, streams, tower_for)
    columns = with_private_prefixes(columns, given.private_prefix_tokens)
    columns = _described(with_budgets(columns, longest_text), section, seed, parts)
    if stages:
        columns = _used(stages, columns)
    built = workload_of(columns, section, duration_s, streams, stages, enough.counts,
                        _warmups(section, source, seed, parts))
    if getattr(getattr(parameters, "sessions", None), "on_reject", "end") == "continue":
        if built.script is None or built.script.edges is None:
            raise InputErrors([KeyFault(
                "workload.sessions.on_reject: no request of this workload waits for another; leave it out")])
        built = replace(built, script=replace(built.script, goes_on_after_rejection=True))
    return built if section.cancel_at_deadline else _patient(built)


def _check_guess(section) -> None:
    """Refuse keys that need the number of sessions where a duration alone bounds it."""
    faults = [KeyFault(f"workload.{key}: needs num_sessions; a duration alone does not say whose")
              for key, is_given in (("warmup.primers", section.warmup.primers == "first_turn"),
                                    ("load.sessions_per_slot", section.load.sessions_per_slot is not None)) if is_given]
    if faults:
        raise InputErrors(faults)


def _check_idle_cap(columns: Columns) -> None:
    if columns.waits is None or len(np.unique(columns.waits.plays)) == len(columns):
        raise InputErrors([KeyFault("workload.load.tree_idle_cap_s: no play of this workload has several requests, "
                                    "between which it could be idle; leave it out")])


def _check_plays(columns: Columns, count: int) -> None:
    num_plays = len(columns) if columns.waits is None else len(np.unique(columns.waits.plays))
    if columns.clients is None and num_plays < count:
        raise InputErrors([KeyFault(
            f"workload.duration_s: a closed loop may need more than the {num_plays} requests or sessions that there "
            "are; give their number, too")])


def _due(load: Load, duration_s: float, has_sessions: bool) -> int:
    """Return how many requests users send until the end, if every answer is in time.

    Raises
    ------
    InputErrors
        Users send sessions, with an unknown number of turns, or the requests are too many.
    """
    if has_sessions:
        raise InputErrors([KeyFault("workload.num_sessions: missing; users take one session after the other")])
    due = duration_s * load.rate_per_s
    if due > MAX_REQUESTS:
        raise InputErrors([KeyFault(f"workload.duration_s: {due:.6g} requests at {load.rate_per_s:g}/s are too many")])
    return math.ceil(due - 1e-9)


def _described(columns: Columns, section, seed: int, parts: Iterable) -> Columns:
    for part in parts:
        columns = part.requests(columns, seed)
    return with_knowledge(columns, section.output_knowledge, seed)


def _warmups(section, source, seed: int, parts: Iterable) -> Warmups | None:
    """Return the requests of [workload.warmup] stage.

    They have random streams of their own, so that the other requests stay the same.

    Raises
    ------
    InputErrors
        The workload type does not draw single requests, or the workload has images.
    """
    stage = section.warmup.stage
    if stage is None:
        return None
    if not hasattr(source, "drawn"):
        raise InputErrors([KeyFault(f'workload.warmup.stage: requests are drawn for it, and type = "{section.type}" '
                                    "does not draw them one by one; take copies_of_first")])
    for key in ("images", "videos"):
        if getattr(section, key) is not None:
            raise InputErrors([KeyFault(f"workload.warmup.stage: has no {key}, the others do ([workload.{key}]); take "
                                        "copies_of_first")])
    streams = RandomStreams(seed, "warmup ")
    plan = plan_stage(stage, streams.generator("stage"), FIRST_GUESS, "workload.warmup.stage")
    if not plan.count:
        return Warmups(None, plan)
    columns = source.drawn(streams, np.zeros(plan.count, np.int64))
    ids = -1 - np.arange(len(columns))
    return Warmups(_described(replace(columns, request_ids=ids), section, seed, parts), plan)


def _recycled(columns: Columns, given: Load, duration_s: float | None, guess: int) -> Columns:
    """Return plays that are repeated until the end of the load, as far as it is known."""
    if columns.clients is not None:
        raise InputErrors([KeyFault("workload.load.recycle: expected false beside clients with loads of their own: "
                                    "their requests do not come again")])
    if columns.most:
        return repeated(columns, columns.most)
    if duration_s is None:
        raise InputErrors([KeyFault("workload.load.recycle: plays come again until duration_s or max_requests, and the "
                                    "workload has neither")])
    plays = len(columns) if columns.waits is None else 1 + int(columns.waits.plays.max())
    count = max(guess * given.lanes, -(-given.lanes // plays) * len(columns))
    return replace(repeated(columns, count), is_guess=True)


def _patient(workload: Workload) -> Workload:
    """Return the requests of clients that keep waiting when the answer is late.

    Raises
    ------
    InputErrors
        No request has a deadline.
    """
    script = workload.script
    if not np.any(workload.demands["due_ns"] >= 0) and (script is None or script.timeout_ns is None):
        raise InputErrors([KeyFault("workload.cancel_at_deadline: no request of this workload has a deadline; leave it "
                                    "out")])
    if script is None or not script.cancels:
        workload.demands["deadline_ns"] = records.NEVER_NS
    return replace(workload, script=script and replace(script, waits_on=True))


def _used(stages: list[StagePlan], columns: Columns) -> Columns:
    """Return the plays that stages use.

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
    is_used = np.zeros(len(order), bool)
    is_used[order[:total]] = True
    rows_used = is_used if columns.waits is None else is_used[columns.waits.plays]
    rows = np.concatenate([np.flatnonzero(rows_used), np.flatnonzero(~rows_used)])
    return first_rows(replace(reordered(columns, rows), most=int(rows_used.sum())))
