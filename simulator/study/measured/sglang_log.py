"""Lines that SGLang logs of its batches: durations from throughputs, where the lines say what ran between them.

`Decode batch` is logged every `decode_log_interval` decodes (40), with the tokens of the interval over its time.
Between two such lines without a prompt, requests can only end: with as many running at both, each iteration took
running x accept len / throughput. `Prefill batch` is logged for each, with its new tokens over the time since the last
one: the time of the batch where the line before is of a prompt with requests left in the queue, since SGLang prefers
prompts. All other lines have no duration and are left out. Source: sgl-project/sglang, scheduler_metrics_mixin.py.
"""
import re
from typing import NamedTuple

from simulator.errors import InputErrors
from simulator.study.measured.record import Measured, Row, counted
from simulator.study.measured.source import Source

NAME = "SGLang's log"
LINE = re.compile(r"(Prefill|Decode) batch(?: \[\d+\])?, (#[^\n]*)")
NUMBER = re.compile(r"([#\w][\w ()#/.-]*?): ([\d.]+)")
RANK = re.compile(r"\b(DP\d+)\b")
INTERVAL = re.compile(r"decode_log_interval=(\d+)")
VERSION = re.compile(r"sglang[ =v:]{1,3}(\d+\.\d+[\w.]*)", re.IGNORECASE)
USUAL_INTERVAL = 40
LOOKED_AT = 2**20               # bytes, searched for such a line


class Batch(NamedTuple):
    """A line: of prompts or decodes, and its numbers by name."""

    is_prefill: bool
    numbers: dict[str, float]


def recognises(source: Source) -> bool:
    """Return whether a file has lines as SGLang logs them."""
    text = source.data[:LOOKED_AT].decode("utf-8", "replace")
    found = LINE.search(text)
    return found is not None and "throughput (token/s)" in text


def read(source: Source) -> list[Measured]:
    """Return iterations with a duration, of each data-parallel rank.

    Raises
    ------
    InputErrors
        Several versions; no duration follows from its lines.
    """
    text = source.data.decode("utf-8", "replace")
    versions = list(dict.fromkeys(VERSION.findall(text)))
    if len(versions) > 1:
        raise InputErrors([f"{source.path}: lines of several versions: {', '.join(versions)}: split the file"])
    given = INTERVAL.search(text)
    interval = int(given[1]) if given else USUAL_INTERVAL
    by_rank: dict[str, list[Batch]] = {}
    for line in text.splitlines():
        if found := LINE.search(line):
            rank = RANK.search(line[:found.start()])
            numbers = {name.strip(): float(value.rstrip(".")) for name, value in NUMBER.findall(found[2])}
            by_rank.setdefault(rank[1] if rank else "", []).append(Batch(found[1] == "Prefill", numbers))
    sets = []
    for rank, batches in by_rank.items():
        rows = rows_of(batches, interval)
        notes = [f"{len(rows):,} of {counted(len(batches), 'line')} have a duration: decodes with as many running as "
                 "the line before, and prompts behind prompts while requests wait.",
                 f"a line of decodes is the mean of {interval} iterations"
                 + ("." if given else ", SGLang's default: the log does not name decode_log_interval."),
                 "its lines have whole seconds at most: gaps between iterations are in their durations."]
        if rows:
            about = {"engine": "SGLang"} | ({"version": versions[0]} if versions else {})
            sets.append(Measured(f"{source.stem}-{rank}" if len(by_rank) > 1 else source.stem, [], rows, tuple(notes),
                                 about))
    if not sets:
        count = counted(sum(map(len, by_rank.values())), "line")
        raise InputErrors([f"{source.path}: no duration follows from its {count} of batches: two lines of decodes with "
                           "as many running, and no prompt between them, have one"])
    return sets


def rows_of(batches: list[Batch], interval: int) -> list[Row]:
    """Return the rows of lines with a duration, in their order."""
    found, before = [], None
    for batch in batches:
        if before is not None and batch.is_prefill == before.is_prefill:
            row = _prefill(batch, before) if batch.is_prefill else _decode(batch, before, interval)
            if row is not None:
                found.append(row)
        before = batch
    return found


def _decode(batch: Batch, before: Batch, interval: int) -> Row | None:
    running, throughput = batch.numbers.get("#running-req"), batch.numbers.get("gen throughput (token/s)", 0.0)
    tokens = batch.numbers.get("#token", batch.numbers.get("#full token"))
    if not running or running != before.numbers.get("#running-req") or throughput <= 0.0 or tokens is None:
        return None
    accepted = batch.numbers.get("accept len") or 1.0
    middle = max(tokens - running * accepted * (interval - 1) / 2, running)     # of the contexts of the interval
    return {"duration_s": running * accepted / throughput, "num_sequences": int(running), "num_prefills": 0,
            "prefill_tokens": 0, "decode_tokens": int(running), "context_tokens": round(middle),
            "waiting": int(batch.numbers.get("#queue-req", 0)), "prefill_context_tokens": 0}


def _prefill(batch: Batch, before: Batch) -> Row | None:
    tokens, sequences = batch.numbers.get("#new-token"), batch.numbers.get("#new-seq")
    throughput = batch.numbers.get("input throughput (token/s)", 0.0)
    if not tokens or not sequences or throughput <= 0.0 or not before.numbers.get("#queue-req"):
        return None
    cached = batch.numbers.get("#cached-token", 0.0)
    return {"duration_s": tokens / throughput, "num_sequences": int(sequences), "num_prefills": int(sequences),
            "prefill_tokens": int(tokens), "decode_tokens": 0, "context_tokens": int(tokens + cached),
            "waiting": int(batch.numbers.get("#queue-req", 0)), "prefill_context_tokens": int(cached)}
