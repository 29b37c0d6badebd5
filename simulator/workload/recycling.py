"""Repeated plays."""
import numpy as np
from msgspec.structs import replace

from simulator.domain import records
from simulator.workload.columns import Columns, Prompts


def repeated(columns: Columns, num_requests: int) -> Columns:
    """Return all plays repeated until they have at least `num_requests`.

    Repetitions share nothing with earlier ones: their texts and sessions are new, like AgentX's replays with private
    prefixes.
    """
    count = len(columns)
    times = max(1, -(-num_requests // count))
    if times == 1:
        return columns
    turn = np.repeat(np.arange(times), count)
    ids = columns.request_ids if columns.request_ids is not None else range(count)
    tiled = {name: np.tile(getattr(columns, name), times)
             for name in ("arrival_ns", "prompt_tokens", "output_tokens", "priority", "max_tokens", "timeout_ns",
                          "expected_tokens")
             if getattr(columns, name) is not None}
    tiled["facts"] = {name: np.tile(values, times) for name, values in columns.facts.items()}
    labels = {label: (np.tile(codes, times), names) for label, (codes, names) in columns.labels.items()}
    if "session" in labels:
        codes, names = labels["session"]
        labels["session"] = (np.where(codes < 0, -1, codes + turn * len(names)),
                             [f"{name}#{k}" if k else name for k in range(times) for name in names])
    waits = columns.waits
    if waits is not None:
        shift = np.repeat(np.arange(times), len(waits.sources)) * count
        waits = replace(
            waits, plays=np.tile(waits.plays, times) + turn * (int(waits.plays.max()) + 1),
            sources=np.tile(waits.sources, times) + shift, targets=np.tile(waits.targets, times) + shift,
            delays_ns=np.tile(waits.delays_ns, times), from_dispatch=np.tile(waits.from_dispatch, times),
            not_before_ns=None if waits.not_before_ns is None else np.tile(waits.not_before_ns, times))
    images = columns.images
    if images is not None:
        images = (images + (np.arange(times)[:, None] * _num_named(columns.prompts) << 2)).reshape(-1)
    return replace(columns, **tiled, labels=labels, waits=waits, images=images,
                   prompts=_repeated(columns.prompts, times, count),
                   request_ids=[f"{each}#{k}" if k else str(each) for k in range(times) for each in ids])


def _repeated(prompts: Prompts | None, times: int, count: int) -> Prompts | None:
    if prompts is None:
        return None
    streams = np.tile(prompts.streams, times)
    turn = np.repeat(np.arange(times), len(prompts.streams))
    is_named = streams & 3 == records.named_stream(0)
    shift = np.where(is_named, _num_named(prompts), count)
    return Prompts(np.tile(prompts.num_segments, times), streams + (turn * shift << 2),
                   np.tile(prompts.num_tokens, times))


def _num_named(prompts: Prompts) -> int:
    """Return a number that no stream reaches."""
    return int((prompts.streams >> 2).max(initial=0)) + 1
