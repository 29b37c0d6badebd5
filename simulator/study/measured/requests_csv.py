"""`*.requests.csv` of data/measured_vllm_cpu: a row a request, and side files with the same stem.

A first line `# t0_unix=...` gives the zero of times. Columns: id, group, prefix_len, prompt_len, output_len,
t_planned, t_send, ttft, e2e, n_chunks, n_tokens, finish; seconds. Requests of a group begin with the same prefix_len
tokens. Side files: `.tokens.csv` (arrival of each message), `.steps.csv`, `.info.txt` and `.steps.csv.req` (prompt
tokens that the engine found in its cache).
"""
import re
from itertools import pairwise

from simulator.errors import InputErrors
from simulator.study.measured.record import OK, Measured, Row, counted, failure_notes, late
from simulator.study.measured.source import Source
from simulator.study.measured.step_log import join, steps_of

NAME = "*.requests.csv"
NEEDED = {"id": str, "group": int, "prefix_len": int, "prompt_len": int, "output_len": int, "t_planned": float,
          "t_send": float, "ttft": float, "e2e": float, "n_chunks": int, "n_tokens": int, "finish": str}
T0 = re.compile(r"^#\s*t0_unix=([\d.]+)")
CLOSE_S = 2e-6      # times are written to the microsecond


def recognises(source: Source) -> bool:
    """Return whether a file has this format."""
    return T0.match(source.data[:200].decode("utf-8", "replace")) is not None and NEEDED.keys() <= source.columns


def read(source: Source) -> list[Measured]:
    """Return the requests of a file, with the data of its side files.

    Raises
    ------
    InputErrors
        All faults of its rows.
    """
    rows = [_row(row) for _, row in source.rows(NEEDED)]
    source.faults.raise_if_any()
    if not rows:
        raise InputErrors([f"{source.path}: there are no requests in it"])
    zero_s = float(T0.match(source.data[:200].decode("utf-8", "replace"))[1])
    notes = [*failure_notes(rows), *_against_tokens(source, rows), *_cached(source, rows)]
    steps: list[Row] = []
    if (log := source.side(".steps.csv")) is not None:
        steps, step_notes = steps_of(log)
        notes += step_notes
    shift = join(rows, steps, zero_s)
    notes.append(f"times are shifted by {-shift:.6f} s: 0 is the first planned request; the client sent up to "
                 f"{1e3 * late(rows)[-1]:.3f} ms later than planned.")
    return [Measured(source.stem, rows, steps, tuple(notes), {"engine": "vLLM"})]


def _row(row: dict) -> Row:
    shared, prompt = row["prefix_len"], row["prompt_len"]
    is_shared = row["group"] >= 0 and 0 < shared <= prompt
    rest = f"/:{prompt - shared}" if prompt > shared else ""
    has_served = row["n_tokens"] > 0
    return {
        "request_id": row["id"], "planned_s": row["t_planned"], "sent_s": row["t_send"],
        "ttft_s": row["ttft"] if has_served else None, "e2el_s": row["e2e"] if has_served else None,
        "input_tokens": prompt, "output_tokens": row["n_tokens"] if has_served else None, "messages": row["n_chunks"],
        "status": OK if has_served else "failed", "finish_reason": row["finish"] or None,
        "prompt": f"group{row['group']}:{shared}{rest}" if is_shared else None}


def _against_tokens(source: Source, rows: list[Row]):
    """Yield differences between times of messages and of requests; count messages that arrived together."""
    side = source.side(".tokens.csv")
    if side is None:
        return
    times: dict[str, list[float]] = {}
    for _, row in side.rows({"id": str, "t": float}):
        times.setdefault(row["id"], []).append(row["t"])
    side.faults.raise_if_any()
    deviating = 0
    for row in rows:
        found = times.get(row["request_id"], [])
        if row["status"] != OK:
            continue
        first, last = (row["sent_s"] + row[name] for name in ("ttft_s", "e2el_s"))
        deviating += not found or abs(found[0] - first) > CLOSE_S or abs(found[-1] - last) > CLOSE_S
        row["batched"] = sum(later == earlier for earlier, later in pairwise(found))
    if deviating:
        yield f"of {counted(deviating, 'request')} TTFT or E2EL are not the times of their messages in {side.path}."


def _cached(source: Source, rows: list[Row]):
    """Set the cached tokens of requests from the engine's log; yield why not.

    The engine has names of its own, and its log begins with warm-up requests: the last ones are the measured ones, in
    the order in which they were sent.
    """
    side = source.side(".steps.csv.req")
    if side is None:
        return
    found = [row for _, row in side.rows({"prompt_len": int, "cached_tokens": int})][-len(rows):]
    side.faults.raise_if_any()
    by_time = sorted(rows, key=lambda row: row["sent_s"])
    if [row["prompt_len"] for row in found] != [row["input_tokens"] for row in by_time]:
        yield f"cached_tokens are not known: the prompts in {side.path} are others."
        return
    for row, engine in zip(by_time, found):
        row["cached_tokens"] = engine["cached_tokens"]
