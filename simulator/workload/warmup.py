"""Requests that warm the caches before others come."""
import numpy as np
from msgspec.structs import replace

from simulator.domain import records
from simulator.workload.columns import LABELS, Columns, Prompts
from simulator.workload.limits import MISSING
from simulator.workload.script import Group, Script


def behind(columns: Columns, warmups: Columns) -> Columns:
    """Return requests with streams of their own as if they stood behind others.

    The streams of these may have numbers beyond their rows: of requests that were left out.
    """
    if warmups.prompts is None:
        return warmups
    streams = warmups.prompts.streams.copy()
    others = np.empty(0, np.int64) if columns.prompts is None else columns.prompts.streams
    others = others[others & 3 != records.named_stream(0)] >> 2
    is_own = streams & 3 != records.named_stream(0)
    streams[is_own] += max(len(columns), int(others.max(initial=-1)) + 1) << 2
    return replace(warmups, prompts=replace(warmups.prompts, streams=streams))


def copies_of_first(columns: Columns, copies: int) -> Columns:
    """Return so many times the first request, as `vllm bench serve` sends it.

    The prompts hold its very tokens: its stream is that of a row of `columns`.
    """
    first = np.zeros(copies, np.int64)

    def repeated(values):
        return None if values is None else values[first]

    return Columns(
        first, repeated(columns.prompt_tokens), repeated(columns.output_tokens), priority=repeated(columns.priority),
        max_tokens=repeated(columns.max_tokens), expected_tokens=repeated(columns.expected_tokens),
        labels={column: (codes[first], names) for column, (codes, names) in columns.labels.items()},
        facts={name: values[first] for name, values in columns.facts.items()}, prompts=_prompts(columns, copies))


def _prompts(columns: Columns, copies: int) -> Prompts:
    prompts = columns.prompts
    first = 0 if prompts is None else int(prompts.num_segments[0])
    streams, num_tokens = np.array([records.own_stream(0)]), columns.prompt_tokens[:1]
    if first:
        streams, num_tokens = prompts.streams[:first], prompts.num_tokens[:first]
    return Prompts(np.full(copies, len(streams)), np.tile(streams, copies), np.tile(num_tokens, copies))


def with_warmups(columns: Columns, script: Script, warmups: Columns, group: Group,
                 start_ns: np.ndarray | None = None) -> tuple[Columns, Script]:
    """Return the requests, behind them those that come before all.

    The others begin when all of these have ended.

    Parameters
    ----------
    warmups : requests of which none waits for another; their streams are numbered as those of `columns`.
    group : how they come; its plays are set here.
    start_ns : int64, when each may come; None: all at once.
    """
    count, plays = len(warmups), len(script.start_ns)
    none_ns = np.zeros(count, np.int64)
    groups = tuple(replace(each, after=0 if each.after < 0 else each.after + 1) for each in script.groups)
    timeout_ns = None
    if script.timeout_ns is not None or warmups.timeout_ns is not None:
        timeout_ns = np.append(_filled(script.timeout_ns, len(columns), MISSING),
                               _filled(warmups.timeout_ns, count, MISSING))
    return _appended(columns, warmups), replace(
        script, groups=(replace(group, plays=plays + np.arange(count)), *groups),
        start_ns=np.append(script.start_ns, none_ns if start_ns is None else start_ns),
        play_begins=None if script.play_begins is None else np.append(
            script.play_begins, script.play_begins[-1] + 1 + np.arange(count)),
        offset_ns=None if script.offset_ns is None else np.append(script.offset_ns, none_ns),
        rest_ns=None if script.rest_ns is None else np.append(script.rest_ns, none_ns), timeout_ns=timeout_ns)


def _appended(columns: Columns, warmups: Columns) -> Columns:
    """Return one table; what one of both does not say is as if it were not given."""
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
        if one is not None or other is not None:        # names of both stand for the same, or one has none
            labels[column] = (np.append(_filled(one, len(columns), -1), _filled(other, count, -1)), names or more)
    for fact in {*columns.facts, *warmups.facts}:
        facts[fact] = np.append(_filled(columns.facts.get(fact), len(columns), MISSING),
                                _filled(warmups.facts.get(fact), count, MISSING))
    return replace(
        columns, request_ids=ids, arrival_ns=joined("arrival_ns", 0), prompt_tokens=joined("prompt_tokens", 0),
        output_tokens=joined("output_tokens", 0), priority=joined("priority", 0),
        max_tokens=joined("max_tokens", MISSING), expected_tokens=joined("expected_tokens", -1), timeout_ns=None,
        waits=None, clients=None, labels=labels, facts=facts, prompts=_joined(columns, warmups),
        notes=(*columns.notes, *warmups.notes))


def _joined(columns: Columns, warmups: Columns) -> Prompts | None:
    if columns.prompts is None and warmups.prompts is None:
        return None
    one, other = (each.prompts or Prompts(np.zeros(len(each), np.int64), *np.zeros((2, 0), np.int64))
                  for each in (columns, warmups))
    return Prompts(*(np.append(getattr(one, name), getattr(other, name)) for name in Prompts.__struct_fields__))


def _filled(values: np.ndarray | None, count: int, missing: int) -> np.ndarray:
    return np.full(count, missing) if values is None else values
