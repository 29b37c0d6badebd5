"""`tracev2`: the traces of BLIS, a CSV file with a header in YAML beside it.

Source: inference-sim (BLIS) at f90a1e3a, sim/workload/tracev2.go, session.go, sim/slo.go. Times are whole microseconds,
0: not known.
"""
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from simulator.domain import records
from simulator.domain.slo_classes import PRIORITIES, UNKNOWN_PRIORITY
from simulator.errors import InputErrors
from simulator.workload.columns import Columns, Prompts, Waits
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS, MISSING
from simulator.workload.reading.csv_scan import Column, Kind, Scan
from simulator.workload.reading.faults import Faults
from simulator.workload.reading.tables import scan_columns
from simulator.workload.reading.yaml_files import read_yaml

US = 1000                                           # in nanoseconds
SESSION_TIMEOUT_US = 300_000_000                    # of a request in a session without a deadline
MOST_URGENT = max(PRIORITIES.values())
MICROSECONDS = Column(Kind.INTEGER, 0, MAX_TIME_NS // US)
COLUMNS = {
    "request_id": Column(Kind.INTEGER, 0, 2**62, required=True), "client_id": Column(Kind.IGNORE),
    "tenant_id": Column(Kind.TEXT), "slo_class": Column(Kind.TEXT), "session_id": Column(Kind.TEXT),
    "round_index": Column(Kind.INTEGER), "prefix_group": Column(Kind.TEXT), "prefix_length": Column(Kind.INTEGER),
    "streaming": Column(Kind.IGNORE), "input_tokens": Column(Kind.INTEGER, required=True),
    "output_tokens": Column(Kind.INTEGER, required=True),
    **dict.fromkeys(("text_tokens", "image_tokens", "audio_tokens", "video_tokens", "reason_ratio"),
                    Column(Kind.IGNORE)),
    "model": Column(Kind.TEXT), "deadline_us": MICROSECONDS, "server_input_tokens": Column(Kind.INTEGER),
    "arrival_time_us": Column(Kind.INTEGER, 0, MAX_TIME_NS // US, required=True), "send_time_us": MICROSECONDS,
    **dict.fromkeys(("first_chunk_time_us", "last_chunk_time_us", "num_chunks", "status", "error_message",
                     "finish_reason"), Column(Kind.IGNORE))}
OPTIONAL = {"vllm_priority": Column(Kind.INTEGER, -2**31, 2**31 - 1), "slo_target_us": MICROSECONDS,
            "x_request_id": Column(Kind.IGNORE), "adapter": Column(Kind.TEXT), "think_time_us": MICROSECONDS}
LABELS = {"slo_class": "slo_class", "tenant": "tenant_id", "session": "session_id", "model": "model",
          "adapter": "adapter"}                     # ours: theirs


class Header(msgspec.Struct, forbid_unknown_fields=True):
    """The content of the header; most of it describes the origin of the trace."""

    trace_version: Literal[3]
    time_unit: Literal["microseconds", "us"]
    mode: Literal["generated", "real", "replayed"]
    warm_up_requests: Annotated[int, Meta(ge=0)] = 0
    created_at: Any = None
    workload_seed: int | None = None
    workload_spec: str | None = None
    session_context_growth: Literal["", "accumulate"] = ""
    server: dict | None = None
    network: dict | None = None
    goodput_slo_targets: dict | None = None
    kv_offload: dict | None = None
    observed_kv_metrics: dict | None = None


class TraceV2Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Data that a trace of BLIS lacks."""

    header: Annotated[str, Meta(extra={"path": True}, description=(
        "the trace's YAML file, which sets whether prompts grow within a session; absent: they do not"))] = ""
    session_mode: Annotated[Literal["fixed", "closed_loop"], Meta(description=(
        "fixed: turns come at recorded times; closed_loop: after the end of the turn before and a pause"))] = "fixed"
    think_time_s: Annotated[float, Meta(ge=0, le=MAX_TIME_NS / 1e9, description=(
        "the pause of closed_loop, if neither think_time_us nor the recorded arrivals give it"))] = 0.0
    priorities: Annotated[dict[str, Annotated[int, Meta(ge=-100, le=100)]], Meta(description=(
        "of SLO classes, if they differ from those of [[slo.classes]]; the highest goes first"))] = {}
    upstream_compat: Annotated[bool, Meta(description=(
        "with closed_loop, as in BLIS: the pause begins at the end in the engine, not at the last token that clients "
        "see, and a growing prompt has all but the last output token of each turn"))] = False


class TraceV2:
    """The reader of BLIS's traces.

    A prompt is the prefix of its group, with the length in the group's first row, and a rest.
    """

    Parameters = TraceV2Parameters

    def __init__(self, parameters: TraceV2Parameters):
        self.given = parameters

    def read(self, path: str | Path, data: bytes) -> Columns:
        """Return the requests of a file that holds `data`, in file order.

        Raises
        ------
        InputErrors
            All faults of the file, by line and column, or of its header.
        """
        faults = Faults(path)
        header = read_header(self.given.header) if self.given.header else None
        scan = scan_columns(path, data, COLUMNS | OPTIONAL, tuple(COLUMNS), faults, strict=True)
        faults.raise_if_any()
        is_closed = self.given.session_mode == "closed_loop"
        order = _turns(scan, faults) if is_closed else None
        own, shared = _lengths(scan)
        grows = is_closed and header is not None and header.session_context_growth == "accumulate"
        prompts = _Pieces(scan, own, shared, order if grows else None, self.given.upstream_compat)
        lengths = prompts.lengths()
        for row in np.flatnonzero((lengths < 1) | (lengths > MAX_TOKENS)):
            faults.add(scan.lines[row], (
                f"input_tokens: expected a prompt of 1 to {MAX_TOKENS} tokens, prefix and turns before it included, "
                f"found {lengths[row]}"))
        faults.raise_if_any()
        arrival_us = _first_known(scan, "send_time_us", "arrival_time_us")
        return Columns(
            arrival_ns=US * arrival_us, prompt_tokens=lengths, output_tokens=scan.values["output_tokens"],
            request_ids=[f"request_{number}" for number in scan.values["request_id"].tolist()],
            priority=self._priorities(scan), timeout_ns=_timeouts(scan, arrival_us, is_closed),
            labels={ours: _label(scan, theirs) for ours, theirs in LABELS.items() if theirs in scan.values},
            prompts=prompts.prompts(), waits=self._waits(scan, order, arrival_us) if is_closed else None,
            from_engine=is_closed and self.given.upstream_compat, notes=_notes(scan, header, self.given))

    def _priorities(self, scan: Scan) -> np.ndarray:
        given = scan.values.get("vllm_priority")
        if given is not None:
            return np.where(given == MISSING, 0, given)
        of = PRIORITIES | self.given.priorities
        codes, names = _label(scan, "slo_class")
        unnamed = of.get("", UNKNOWN_PRIORITY)
        return MOST_URGENT - np.array([*(of.get(name, UNKNOWN_PRIORITY) for name in names), unnamed])[codes]

    def _waits(self, scan: Scan, order: list[np.ndarray], arrival_us: np.ndarray) -> Waits:
        """Return the dependencies; `order`: the rows of each session by round."""
        plays = np.arange(len(scan.lines))
        for rows in order:
            plays[rows] = rows[0]
        sources = np.concatenate([rows[:-1] for rows in order]) if order else np.empty(0, np.int64)
        targets = np.concatenate([rows[1:] for rows in order]) if order else np.empty(0, np.int64)
        think_us = _known(scan, "think_time_us")[targets]
        if not think_us.any():
            think_us = arrival_us[targets] - arrival_us[sources]
        if not (think_us > 0).any():
            think_us = np.full(len(targets), round(self.given.think_time_s * 1e6))
        return Waits(plays, sources, targets, US * np.maximum(think_us, 0), np.zeros(len(targets), bool))


def read_header(path: str | Path) -> Header:
    """Return the header of a trace.

    Raises
    ------
    InputErrors
        It cannot be read, or has keys or values that no header has.
    """
    try:
        return msgspec.convert(read_yaml(path), Header)
    except msgspec.ValidationError as error:
        raise InputErrors([f"{path}: {error}"]) from None


class _Pieces:
    """The prompts of a trace as pieces of token streams.

    turns : the rows of each session by round, if a prompt begins with all earlier rounds of its session; None: no
        prompt does.
    """

    def __init__(self, scan: Scan, own: np.ndarray, shared: np.ndarray, turns: list[np.ndarray] | None,
                 drops_last: bool):
        self._group = np.where(shared > 0, _known(scan, "prefix_group"), 0)
        self._own, self._shared = own, shared
        self._outputs = np.maximum(scan.values["output_tokens"] - drops_last, 0)
        self._before = {row: rows[:i].tolist() for rows in turns or () for i, row in enumerate(rows.tolist())}

    def lengths(self) -> np.ndarray:
        """Return the tokens of each prompt."""
        history = np.zeros(len(self._own), np.int64)
        for row, before in self._before.items():
            history[row] = sum(int(self._own[each] + self._outputs[each]) for each in before)
        return self._shared + history + self._own

    def prompts(self) -> Prompts:
        """Return the segments of all prompts; empty pieces are left out."""
        pieces = [self._of_row(row) for row in range(len(self._own))]
        flat = [piece for each in pieces for piece in each]
        return Prompts(np.array([len(each) for each in pieces], np.int64),
                       *(np.array([piece[i] for piece in flat], np.int64) for i in (0, 1)))

    def _of_row(self, row: int) -> list[tuple[int, int]]:
        pieces = [(records.named_stream(int(self._group[row])), int(self._shared[row]))]
        for each in self._before.get(row, ()):
            pieces += [(records.own_stream(each), int(self._own[each])),
                       (records.output_stream(each), int(self._outputs[each]))]
        return [piece for piece in (*pieces, (records.own_stream(row), int(self._own[row]))) if piece[1] > 0]


def _turns(scan: Scan, faults: Faults) -> list[np.ndarray]:
    """Return the rows of each session by round; missing and duplicate rounds are faults."""
    codes, names = _label(scan, "session_id")
    rounds = _known(scan, "round_index")
    order = np.lexsort((rounds, codes))
    order = order[codes[order] >= 0]
    found = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(order) else []
    for rows in found:
        wrong = np.flatnonzero(rounds[rows] != np.arange(len(rows)))
        if len(wrong):
            row = rows[wrong[0]]
            expected = f'{wrong[0]}, the next round of session "{names[codes[row]]}"'
            faults.add_cell(scan.lines[row], "round_index", expected, str(rounds[row]))
    faults.raise_if_any()
    return found


def _lengths(scan: Scan) -> tuple[np.ndarray, np.ndarray]:
    """Return the own and the shared tokens of each prompt."""
    groups, _ = _label(scan, "prefix_group")
    prefix = _known(scan, "prefix_length")
    found, first = np.unique(groups, return_index=True)
    of_group = np.where(found < 0, 0, prefix[first])
    served = _known(scan, "server_input_tokens")
    own = np.where((groups < 0) & (served > 0), served, scan.values["input_tokens"])
    return own, of_group[np.searchsorted(found, groups)]


def _timeouts(scan: Scan, arrival_us: np.ndarray, is_closed: bool) -> np.ndarray:
    deadline_us = _known(scan, "deadline_us")
    timeout_ns = np.where(deadline_us > 0, US * (deadline_us - arrival_us), MISSING)
    if is_closed:
        in_session = _label(scan, "session_id")[0] >= 0
        timeout_ns[in_session & (deadline_us == 0)] = US * SESSION_TIMEOUT_US
    return timeout_ns


def _notes(scan: Scan, header: Header | None, given: TraceV2Parameters) -> tuple[str, ...]:
    """Return notes on data of the trace that the requests lack."""
    notes = []
    targets = int((_known(scan, "slo_target_us") > 0).sum())
    if targets:
        notes.append(f"slo_target_us of {targets} requests is not used: bounds are those of [slo].")
    if header is not None and header.warm_up_requests:
        notes.append(f"warm_up_requests = {header.warm_up_requests} of the header is not used.")
    for key in ("goodput_slo_targets", "kv_offload"):
        if header is not None and getattr(header, key):
            notes.append(f"{key} of the header is not used.")
    if given.session_mode == "fixed" and header is not None and header.session_context_growth:
        notes.append("session_context_growth of the header is not used: it takes session_mode = \"closed_loop\".")
    return tuple(notes)


def _label(scan: Scan, column: str) -> tuple[np.ndarray, list[str]]:
    """Return codes and names of a column; empty cells are -1."""
    codes = scan.values[column]
    return np.where(codes == MISSING, -1, codes), scan.texts[column]


def _known(scan: Scan, column: str) -> np.ndarray:
    """Return a column with 0 for absent values."""
    values = scan.values.get(column)
    return np.zeros(len(scan.lines), np.int64) if values is None else np.where(values == MISSING, 0, values)


def _first_known(scan: Scan, first: str, second: str) -> np.ndarray:
    known = _known(scan, first)
    return np.where(known > 0, known, scan.values[second])
