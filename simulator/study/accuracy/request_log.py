"""Form `request_log`: a replay of a trace on a real server, with the times of each request.

Files: `requests`, JSON Lines with request_id, input_toks, output_toks, queued_ts, first_token_ts and last_token_ts,
seconds; `inputs`, the trace that was sent, in a format of [workload], its requests in the same order; `engine`, JSON
with `engine_kwargs`, vLLM's arguments. Requests arrive when they were queued, with the prompts of the trace.

TTFT and E2E count from queued_ts; TPOT is (last - first token) / (output tokens - 1) where there is more than one; the
makespan is from the first arrival to the last token.
"""
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from simulator.core.unpacking import unpacked
from simulator.errors import InputErrors
from simulator.study.accuracy.case import Case
from simulator.study.accuracy.published import summary_of

LEVEL = "request"
ROLES = ("requests", "inputs", "engine")
PEER_KEY = "role"
# vLLM's argument -> section and key of an experiment.
ARGUMENTS = {
    "tensor_parallel_size": ("topology", "tensor_parallel"), "data_parallel_size": ("topology", "data_parallel"),
    "pipeline_parallel_size": ("topology", "pipeline_parallel"), "dtype": ("model", "dtype"),
    "kv_cache_dtype": ("model", "kv_cache_dtype"),
    **{key: ("engine", key) for key in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size",
                                        "gpu_memory_utilization", "enable_prefix_caching", "async_scheduling")}}
NOT_NEEDED = ("model", "seed")      # [experiment] names the model; output lengths are the log's

Seconds = Annotated[float, Meta(ge=0, le=1e12)]
Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Format of the trace: keys of [workload]."""

    format: str = "mooncake"
    block_size: Annotated[Annotated[int, Meta(ge=1, le=2**20)] | None, Meta(description=(
        "tokens behind one hash id"))] = None


class Line(msgspec.Struct):
    """A request of the log."""

    request_id: str
    input_toks: Tokens
    output_toks: Tokens
    queued_ts: Seconds
    first_token_ts: Seconds
    last_token_ts: Seconds


class EngineFile(msgspec.Struct):
    """The content of the file of engine arguments."""

    engine_kwargs: dict[str, Any]


def read(data_set) -> list[Case]:
    """Return the replay.

    Raises
    ------
    InputErrors
        Every fault of the files, with line and key.
    """
    faults: list[str] = []
    lines = _lines(data_set.path("requests"), faults)
    engine = _engine_tables(data_set.path("engine"), faults)
    published = {}
    for peer in data_set.says.peers:
        published[peer.name] = summary_of(data_set.path(peer.role), faults)
    if faults:
        raise InputErrors(faults)
    lines.sort(key=lambda line: line.queued_ts)
    trace = {"type": "trace", "path": str(data_set.path("inputs").absolute()), "format": data_set.parameters.format}
    if data_set.parameters.block_size is not None:
        trace["block_size"] = data_set.parameters.block_size
    queued_s = np.array([line.queued_ts for line in lines])
    return [Case(
        data_set.says.name, engine | {"workload": trace}, _measured(lines), published,
        arrivals_ns=np.round((queued_s - queued_s[0]) * 1e9).astype(np.int64),
        lengths=np.array([(line.input_toks, line.output_toks) for line in lines]),
        request_ids=tuple(line.request_id for line in lines))]


def _lines(path: Path, faults: list[str]) -> list[Line]:
    decoder, lines = msgspec.json.Decoder(Line), []
    for number, text in enumerate(_content(path).splitlines(), 1):
        try:
            line = decoder.decode(text)
        except msgspec.DecodeError as error:
            faults.append(f"{path}:{number}: {error}")
            continue
        lines.append(line)
        if not line.queued_ts < line.first_token_ts <= line.last_token_ts:
            faults.append(f"{path}:{number}: expected queued_ts < first_token_ts <= last_token_ts, found "
                          f"{line.queued_ts}, {line.first_token_ts}, {line.last_token_ts}")
    if not lines and not faults:
        faults.append(f"{path}: no requests")
    return lines


def _content(path: Path) -> bytes:
    try:
        return unpacked(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise InputErrors([f"{path}: cannot be read: {error}"]) from error


def _engine_tables(path: Path, faults: list[str]) -> dict:
    """Return the tables of an experiment for the engine's arguments."""
    try:
        given = msgspec.json.decode(_content(path), type=EngineFile).engine_kwargs
    except msgspec.DecodeError as error:
        faults.append(f"{path}: {error}")
        return {}
    tables: dict[str, dict] = {}
    for name, value in given.items():
        if name in ARGUMENTS:
            section, key = ARGUMENTS[name]
            if value is not None and (name, value) != ("dtype", "auto"):
                tables.setdefault(section, {})[key] = value
        elif name == "enable_expert_parallel":
            if value:
                tables.setdefault("topology", {})["expert_parallel"] = given.get("tensor_parallel_size", 1)
        elif name not in NOT_NEEDED:
            faults.append(f"{path}: engine_kwargs.{name}: this reader does not know what it is here; known are "
                          f"{', '.join([*ARGUMENTS, 'enable_expert_parallel', *NOT_NEEDED])}")
    return tables


def _measured(lines: list[Line]) -> dict[str, float | np.ndarray]:
    queued, first, last = (np.array([getattr(line, name) for line in lines])
                           for name in ("queued_ts", "first_token_ts", "last_token_ts"))
    gaps = np.array([line.output_toks - 1.0 for line in lines])
    gaps[gaps == 0.0] = np.nan
    return {"ttft": (first - queued) * 1e3, "tpot": (last - first) * 1e3 / gaps, "e2e": (last - queued) * 1e3,
            "makespan": float(last.max() - queued.min())}
