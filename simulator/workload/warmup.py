"""Requests that warm the caches before others come."""
import numpy as np
from msgspec.structs import replace

from simulator.domain import records
from simulator.workload.columns import LABELS, Columns, Prompts
from simulator.workload.script import Group, Script, Slots


def with_warmups(columns: Columns, script: Script, copies: int, concurrency: int | None) -> tuple[Columns, Script]:
    """Return the requests, behind them copies of the first, which come before all.

    As vLLM's `bench serve --num-warmups` does: under the same concurrency, and the rest begins when all have ended.

    Parameters
    ----------
    concurrency : of the copies; None: all come at once.
    """
    ids = columns.request_ids
    if isinstance(ids, list):
        ids = [*ids, *(f"warmup {number}" for number in range(copies))]
    else:
        ids = np.append(ids, -1 - np.arange(copies))
    columns = replace(
        columns, request_ids=ids, prompts=_prompts(columns, copies), arrival_ns=_repeated(columns.arrival_ns, copies),
        prompt_tokens=_repeated(columns.prompt_tokens, copies), output_tokens=_repeated(columns.output_tokens, copies),
        priority=_repeated(columns.priority, copies), max_tokens=_repeated(columns.max_tokens, copies),
        timeout_ns=None, waits=None, clients=None, expected_tokens=_repeated(columns.expected_tokens, copies),
        facts={name: _repeated(values, copies) for name, values in columns.facts.items()},
        labels={column: (_repeated(columns.labels[column][0], copies), columns.labels[column][1])
                for column in LABELS if column in columns.labels})
    plays = len(script.start_ns) + np.arange(copies)
    slots = None if concurrency is None else Slots(np.zeros(min(concurrency, copies), np.int64))
    groups = tuple(replace(group, after=0 if group.after < 0 else group.after + 1) for group in script.groups)
    none_ns = np.zeros(copies, np.int64)
    return columns, replace(
        script, groups=(Group(plays, slots), *groups), start_ns=np.append(script.start_ns, none_ns),
        play_begins=None if script.play_begins is None else np.append(
            script.play_begins, script.play_begins[-1] + 1 + np.arange(copies)),
        offset_ns=None if script.offset_ns is None else np.append(script.offset_ns, none_ns),
        rest_ns=None if script.rest_ns is None else np.append(script.rest_ns, none_ns),
        timeout_ns=None if script.timeout_ns is None else np.append(script.timeout_ns, np.full(copies, -2**63)))


def _repeated(values: np.ndarray | None, copies: int) -> np.ndarray | None:
    return None if values is None else np.append(values, np.repeat(values[:1], copies))


def _prompts(columns: Columns, copies: int) -> Prompts:
    """Return the prompts, with those of the copies: they hold the very tokens of the first."""
    prompts = columns.prompts or Prompts(np.zeros(len(columns), np.int64), *np.zeros((2, 0), np.int64))
    first = int(prompts.num_segments[0])
    streams, num_tokens = prompts.streams[:first], prompts.num_tokens[:first]
    if not first:
        streams, num_tokens = np.array([records.own_stream(0)]), columns.prompt_tokens[:1]
    return Prompts(np.append(prompts.num_segments, np.full(copies, len(streams))),
                   np.append(prompts.streams, np.tile(streams, copies)),
                   np.append(prompts.num_tokens, np.tile(num_tokens, copies)))
