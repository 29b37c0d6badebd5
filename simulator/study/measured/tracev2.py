"""BLIS's TraceV2 of a real server: a CSV file, and its header in YAML beside it.

Source: inference-sim (BLIS) at f90a1e3a, sim/workload/tracev2.go; the reader of the trace, which knows the shared
prompts, is `workload/formats/tracev2`. Times are whole microseconds, 0: not known. `input_tokens` excludes the
prefix.
"""
from simulator.errors import InputErrors
from simulator.study.measured.record import OK, Measured, Row, counted, failure_notes, from_first, late, span
from simulator.study.measured.source import Source
from simulator.workload.formats.tracev2 import TraceV2, TraceV2Parameters, read_header

NAME = "BLIS TraceV2"
US = 1e-6
TIMES = ("arrival_time_us", "send_time_us", "first_chunk_time_us", "last_chunk_time_us")
NEEDED = dict.fromkeys(("input_tokens", "output_tokens", "prefix_length", "num_chunks", *TIMES), int)


def recognises(source: Source) -> bool:
    """Return whether a file has this format."""
    return {"arrival_time_us", "first_chunk_time_us", "num_chunks"} <= source.columns


def read(source: Source) -> list[Measured]:
    """Return the requests of a file.

    Raises
    ------
    InputErrors
        All faults of its rows; the header says that the times are generated.
    """
    notes = [_from_header(source)]
    columns = TraceV2(TraceV2Parameters()).read(source.path, source.data)
    found = [row for _, row in source.rows(NEEDED)]
    source.faults.raise_if_any()
    rows = [_row(row, columns.request_ids[i], int(columns.prompt_tokens[i])) for i, row in enumerate(found)]
    suffixes = sum(bool(row["prefix_group"]) for row in found)
    if suffixes:
        notes.append(f"input_tokens of {counted(suffixes, 'request')} are those after their prefix, which was added; "
                     "the column prompt says who shares it.")
    if not any(row["ttft_s"] is not None for row in rows):
        raise InputErrors([f"{source.path}: first_chunk_time_us: 0 in all rows: nothing was measured; as a trace it is "
                           '[workload] format = "tracev2"'])
    notes += failure_notes(rows)
    before = -from_first(rows)
    delays = late(rows)
    notes.append(f"times are shifted by {before:.6f} s: 0 is the first arrival; the client sent up to "
                 f"{1e3 * (delays[-1] if delays else 0.0):.3f} ms later than planned.")
    return [Measured(source.stem, rows, [], tuple(notes), {})]


def _from_header(source: Source) -> str:
    header = source.side(".yaml") or source.side(".yml")
    if header is None:
        return "there is no header beside it, which would say whether the times are of a real server."
    mode = read_header(header.path).mode
    if mode == "generated":
        raise InputErrors([f'{header.path}: mode: "generated": nothing was measured; as a trace it is [workload] '
                           'format = "tracev2"'])
    return f'mode of its header is "{mode}".'


def _row(row: dict, request_id: str, prompt_tokens: int) -> Row:
    times = {name: US * row[name] if row[name] > 0 else None for name in TIMES}
    sent = times["send_time_us"] if times["send_time_us"] is not None else times["arrival_time_us"]
    group, own = row["prefix_group"], row["input_tokens"]
    is_served = row["status"] in ("", OK)
    return {
        "request_id": request_id, "planned_s": US * row["arrival_time_us"], "sent_s": sent or 0.0,
        "ttft_s": span(times["first_chunk_time_us"], sent or 0.0),
        "e2el_s": span(times["last_chunk_time_us"], sent or 0.0) if is_served else None,
        "input_tokens": prompt_tokens, "output_tokens": row["output_tokens"], "messages": row["num_chunks"] or None,
        "status": OK if is_served else row["status"], "error": row["error_message"] or None,
        "finish_reason": row["finish_reason"] or None, "session": row["session_id"] or None,
        "round": row["round_index"] if row["session_id"] else None,
        "prompt": f"{group}:{prompt_tokens - own}/:{own}" if group and prompt_tokens > own else None}
