"""Logs of an engine's iterations: `.steps.csv`, written by a logging scheduler, and lines that vLLM prints.

`.steps.csv`: a row an iteration: t_sched, t_out (Unix seconds), n_reqs, n_prefill_reqs, prefill_tokens,
decode_tokens, ctx_tokens, running, waiting. Beside it `.info.txt` has the end of the warm-up: iterations scheduled
until then are dropped. vLLM with --enable-logging-iteration-details prints `Iteration(0): 1 context requests, 34
context tokens, 0 generation requests, 0 generation tokens, iteration elapsed time: 34.03 ms`: composition and duration,
but no time.
"""
import re
from decimal import Decimal, InvalidOperation

from simulator.errors import InputErrors
from simulator.study.measured.record import Measured, Row, counted, from_first
from simulator.study.measured.source import Source

NAME = "steps of an engine (.steps.csv)"
PRINTED_NAME = "vLLM's iteration log"
COUNTS = dict.fromkeys(("n_reqs", "n_prefill_reqs", "prefill_tokens", "decode_tokens", "ctx_tokens", "running",
                        "waiting"), int)
PRINTED = re.compile(
    r"Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, (\d+) generation requests, (\d+) generation "
    r"tokens, iteration elapsed time: ([\d.]+) ms( \(dummy\))?(?:, \w+ KV cache usage: ([\d.]+)%)?"
    r"(?:, encoder inputs: (\d+))?")
VERSION = re.compile(r"Initializing a V1 LLM engine \(v([^)]+)\)|vLLM API server version (\S+)")
LOOKED_AT = 2**16       # bytes, searched for such a line


def recognises(source: Source) -> bool:
    """Return whether a file is a `.steps.csv`."""
    return {"t_sched", "t_out", "n_reqs"} <= source.columns


def read(source: Source) -> list[Measured]:
    """Return its iterations, without those of the warm-up.

    Raises
    ------
    InputErrors
        All faults of its rows.
    """
    steps, notes = steps_of(source)
    first = min(step["start_s"] for step in steps)
    for step in steps:
        step["start_s"] = round(step["start_s"] - first, 9)
    return [Measured(source.stem, [], steps, (*notes, f"Unix times are shifted by {-first:.6f} s."), {})]


def steps_of(source: Source) -> tuple[list[Row], tuple[str, ...]]:
    """Return iterations, `start_s` as Unix time, and notes on them."""
    notes, ends = _warmup_end(source)
    steps, dropped = [], 0
    for line, row in source.rows(COUNTS):
        try:
            begin, end = (Decimal(row[name]) for name in ("t_sched", "t_out"))
        except InvalidOperation:
            source.faults.add(line, f"t_sched, t_out: expected two times, found {row['t_sched']}, {row['t_out']}")
            continue
        if not end > begin:
            source.faults.add(line, f"t_out: expected a time after t_sched = {begin}, found {end}")
        elif begin <= ends:
            dropped += 1
        else:
            steps.append({
                "start_s": float(begin), "duration_s": float(end - begin), "num_sequences": row["n_reqs"],
                "num_prefills": row["n_prefill_reqs"], "prefill_tokens": row["prefill_tokens"],
                "decode_tokens": row["decode_tokens"], "context_tokens": row["ctx_tokens"], "running": row["running"],
                "waiting": row["waiting"]})
    source.faults.raise_if_any()
    if not steps:
        raise InputErrors([f"{source.path}: no iteration is left of {counted(dropped, 'iteration')} of warming up"])
    if dropped:
        notes += (f"{counted(dropped, 'iteration')} of warming up were dropped, {len(steps):,} are left.",)
    return steps, notes


def recognises_printed(source: Source) -> bool:
    """Return whether a file has lines as vLLM prints them."""
    return PRINTED.search(source.data[:LOOKED_AT].decode("utf-8", "replace")) is not None


def read_printed(source: Source) -> list[Measured]:
    """Return the iterations that vLLM printed; other lines are ignored."""
    text = source.data.decode()
    versions = list(dict.fromkeys(first or second for first, second in VERSION.findall(text)))
    if len(versions) > 1:
        raise InputErrors([f"{source.path}: lines of several versions: {', '.join(versions)}: split the file"])
    matches = list(PRINTED.finditer(text))
    steps = [_printed(match) for match in matches if not match[7] and not int(match[9] or 0)]
    notes = ["its lines have no time: iterations of warming up are among them, and gaps between them are not known."]
    if not any("kv_cache_usage" in step for step in steps):
        notes.append("context of sequences is not in it: what a token of context costs cannot be told.")
    cut = text.count("Iteration(") - len(matches)
    if cut:
        notes.append(f"{counted(cut, 'line')} with \"Iteration(\" could not be read, and were left out.")
    if len(steps) < len(matches):
        notes.append(f"{counted(len(matches) - len(steps), 'line')} of dummy iterations or of encoders were left out.")
    if not steps:
        raise InputErrors([f"{source.path}: no iteration is left of {counted(len(matches), 'line')}"])
    about = {"engine": "vLLM"} | ({"version": versions[0]} if versions else {})
    return [Measured(source.stem, [], steps, tuple(notes), about)]


def _printed(match: re.Match) -> Row:
    _, prefills, prompt_tokens, decodes, decode_tokens = map(int, match.groups()[:5])
    row = {"duration_s": float(match[6]) / 1e3, "num_sequences": prefills + decodes, "num_prefills": prefills,
           "prefill_tokens": prompt_tokens, "decode_tokens": decode_tokens}
    return row if match[8] is None else row | {"kv_cache_usage": float(match[8]) / 100}


def _warmup_end(source: Source) -> tuple[tuple[str, ...], Decimal]:
    """Return notes, and the Unix time of the end of the warm-up."""
    info = source.side(".info.txt")
    if info is None:
        return ("there is no .info.txt beside it: iterations of warming up, if any, are among the others.",), Decimal(0)
    found = re.search(r"warmup_end_unix\s+([\d.]+)", info.data.decode())
    if found is None:
        raise InputErrors([f"{info.path}: expected a line warmup_end_unix TIME"])
    return (), Decimal(found[1])


def join(rows: list[Row], steps: list[Row], zero_s: float) -> float:
    """Make times of requests and iterations relative to the first planned request.

    zero_s : the Unix time at 0 of the times of requests.
    """
    for step in steps:
        step["start_s"] -= zero_s
    return from_first(rows, steps)
