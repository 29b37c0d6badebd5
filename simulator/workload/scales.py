"""Stretch a trace: times, prompts and outputs; cut texts that are too long."""
import numpy as np
from msgspec.structs import replace

from simulator.errors import InputErrors, KeyFault
from simulator.workload.columns import Columns, Prompts, Waits, nearest
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS


def scale(columns: Columns, time: float = 1.0, prefill: float = 1.0, decode: float = 1.0,
          fixed_ns: int | None = None) -> Columns:
    """Return requests with times and lengths multiplied.

    Lengths are rounded, and stay at least 1. `fixed_ns` is the fixed point of times, None: the first arrival; times
    between requests of a play are multiplied like times between plays. Segment boundaries are scaled as positions in
    the prompt, so equal prefixes stay equal and the segments still add up to the prompt. An output of 0 tokens stays 0;
    a declared limit, a predicted length and reasoning tokens scale with the outputs.
    """
    if time != 1:
        if fixed_ns is None:
            fixed_ns = columns.arrival_ns.min() if len(columns) else 0
        since_fixed_ns = columns.arrival_ns - fixed_ns
        scaled_ns = _scaled(since_fixed_ns, time, MAX_TIME_NS - fixed_ns, "workload.time_scale", "ns of trace")
        columns = replace(columns, arrival_ns=fixed_ns + scaled_ns, waits=_scaled_waits(columns.waits, time))
    if prefill != 1:
        lengths = _scaled(columns.prompt_tokens, prefill, MAX_TOKENS, "workload.prefill_scale", "prompt tokens")
        prompts = columns.prompts and _scale_prompts(columns.prompts, prefill)
        columns = replace(columns, prompt_tokens=np.maximum(lengths, 1), prompts=prompts,
                          facts=_scaled_facts(columns.facts, prefill, ("image_tokens",)))
    if decode != 1:
        columns = replace(
            columns, output_tokens=_scaled_outputs(columns.output_tokens, decode),
            max_tokens=None if columns.max_tokens is None else _scaled_outputs(columns.max_tokens, decode),
            facts=_scaled_facts(columns.facts, decode, ("predicted_tokens", "reasoning_tokens")))
    return columns


def cut(columns: Columns, most: int) -> Columns:
    """Return requests with prompt and output of at most `most` tokens together.

    Outputs are cut to `most` - 1 tokens, then prompts, at their end, to the remaining tokens.
    Source: Vidur's trace replay, vidur/request_generator/trace_replay_request_generator.py, which cuts the prompt
    alone, so that its length may become negative.

    Raises
    ------
    InputErrors
        Prompts consist of earlier rounds, and are not known yet; or they have images.
    """
    if columns.adds_to is not None or "image_tokens" in columns.facts:
        why = "prompts grow from round to round" if columns.adds_to is not None else "prompts have images"
        raise InputErrors([KeyFault(f"workload.max_text_tokens: expected none where {why}")])
    outputs = np.minimum(columns.output_tokens, most - 1)
    lengths = np.minimum(columns.prompt_tokens, most - outputs)
    facts = columns.facts | {name: np.minimum(columns.facts[name], outputs) for name in ("reasoning_tokens",)
                             if name in columns.facts}
    return replace(columns, output_tokens=outputs, prompt_tokens=lengths, facts=facts,
                   prompts=columns.prompts and _cut_prompts(columns.prompts, lengths))


def _cut_prompts(prompts: Prompts, lengths: np.ndarray) -> Prompts:
    """Cut segments off the ends of prompts; a prompt without segments keeps none."""
    owner, starts, ends = _places(prompts)
    kept = starts < lengths[owner]
    counts = np.bincount(owner[kept], minlength=len(prompts.num_segments))
    return Prompts(counts, prompts.streams[kept], (np.minimum(ends, lengths[owner]) - starts)[kept])


def _places(prompts: Prompts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each segment's request, and where it begins and ends in that request's prompt."""
    owner = np.repeat(np.arange(len(prompts.num_segments)), prompts.num_segments)
    before_prompt = (np.cumsum(prompts.num_segments) - prompts.num_segments)[owner]
    ends = np.cumsum(prompts.num_tokens)
    starts = ends - prompts.num_tokens
    return owner, starts - starts[before_prompt], ends - starts[before_prompt]


def _scaled_facts(facts: dict, factor: float, names: tuple[str, ...]) -> dict:
    return facts | {name: _scaled_outputs(facts[name], factor) for name in names if name in facts}


def _scaled_waits(waits: Waits | None, factor: float) -> Waits | None:
    if waits is None:
        return None
    delays_ns, not_before_ns = (
        each if each is None else _scaled(each, factor, MAX_TIME_NS, "workload.time_scale", "ns between requests")
        for each in (waits.delays_ns, waits.not_before_ns))
    return replace(waits, delays_ns=delays_ns, not_before_ns=not_before_ns)


def _scale_prompts(prompts: Prompts, factor: float) -> Prompts:
    """Scale the boundaries of segments, as positions in their prompt; segments that vanish are dropped."""
    owner, starts, ends = _places(prompts)
    is_last = np.append(owner[1:] != owner[:-1], np.ones(min(len(owner), 1), bool))
    new_starts, new_ends = nearest(starts * factor), nearest(ends * factor)
    new_ends[is_last] = np.maximum(new_ends[is_last], 1)
    kept = new_ends > new_starts
    counts = np.bincount(owner[kept], minlength=len(prompts.num_segments))
    return Prompts(counts, prompts.streams[kept], (new_ends - new_starts)[kept])


def _scaled_outputs(lengths: np.ndarray, factor: float) -> np.ndarray:
    scaled = _scaled(np.maximum(lengths, 0), factor, MAX_TOKENS, "workload.decode_scale", "output tokens")
    return np.where(lengths > 0, np.maximum(scaled, 1), lengths)


def _scaled(values: np.ndarray, factor: float, limit: int, key: str, unit: str) -> np.ndarray:
    scaled = values * factor
    if len(scaled) and scaled.max() > limit:
        raise InputErrors([KeyFault(
            f"{key}: {factor:g} makes {scaled.max():.6g} {unit}, at most {limit:.6g} are possible")])
    return nearest(scaled)
