"""Forward-pass metrics of Dynamo, SGLang and vLLM: a JSON object a line, one for each iteration.

Source: ai-dynamo/dynamo @327e70f, components/src/dynamo/common/forward_pass_metrics.py, and the records of
export_forward_pass_metrics.py @aa7b8b9, which hold them as `metrics` with `published_at_ms`. `wall_time` is in seconds,
0 in heartbeats of an idle engine; without `timing_scope` it is from schedule() to update_from_output(). A decoding
sequence counts with prompt and tokens so far; drafts are not counted.
"""
import msgspec

from simulator.errors import InputErrors
from simulator.study.measured.record import Measured, Row, counted
from simulator.study.measured.source import Source

NAME = "forward-pass metrics (Dynamo)"
VERSIONS = (0, 1)               # 0: before the field was there
KERNELS = "execute_model_cuda"


class Scheduled(msgspec.Struct, frozen=True):
    """Requests of an iteration; tokens."""

    num_prefill_requests: int = 0
    sum_prefill_tokens: int = 0
    sum_prefill_kv_tokens: int = 0
    num_decode_requests: int = 0
    sum_decode_kv_tokens: int = 0


class Queued(msgspec.Struct, frozen=True):
    """Requests that wait."""

    num_prefill_requests: int = 0
    num_decode_requests: int = 0


class Metrics(msgspec.Struct, frozen=True):
    """The metrics of an iteration."""

    scheduled_requests: Scheduled
    version: int = 0
    worker_id: str = ""
    dp_rank: int = 0
    timing_scope: str = ""
    wall_time: float = 0.0
    queued_requests: Queued = Queued()


class Exported(msgspec.Struct, frozen=True):
    """A record of Dynamo's exporter."""

    metrics: Metrics
    published_at_ms: int | None = None


def recognises(source: Source) -> bool:
    """Return whether the first line is a record of metrics."""
    keys = source.keys
    return "scheduled_requests" in keys or ("metrics" in keys and b"scheduled_requests" in bytes(keys["metrics"]))


def read(source: Source) -> list[Measured]:
    """Return the iterations of each worker and rank.

    Raises
    ------
    InputErrors
        All faults of its lines, by number; only heartbeats; several scopes of time.
    """
    found, scopes, idle = {}, {}, 0
    lines = source.data.splitlines()
    is_cut = bool(source.data) and not source.data.endswith(b"\n") and not _is_json(lines[-1])
    for line, text in enumerate(lines[:-1] if is_cut else lines, 1):
        if not text.strip():
            continue
        kind = Exported if b'"metrics"' in text else Metrics
        record = source.decoded(text, kind, str(line))
        if record is None:
            continue
        metrics = record.metrics if isinstance(record, Exported) else record
        if metrics.version not in VERSIONS:
            source.faults.add(line, f"version: {metrics.version}: expected one of {VERSIONS}")
        elif not metrics.wall_time > 0.0:
            idle += 1
        else:
            end_s = record.published_at_ms / 1e3 if isinstance(record, Exported) and record.published_at_ms else None
            found.setdefault((metrics.worker_id, metrics.dp_rank), []).append(row_of(metrics, end_s))
            scopes[metrics.timing_scope] = None
    source.faults.raise_if_any()
    if len(scopes) > 1:
        raise InputErrors([f"{source.path}: timing_scope: several: {', '.join(map(repr, scopes))}: versions are mixed"])
    if not found:
        raise InputErrors([f"{source.path}: {counted(idle, 'heartbeat')} of an idle engine, and no iteration"])
    notes = [f"{counted(idle, 'heartbeat')} of an idle engine left out."] * bool(idle)
    notes += ["its last line is cut, and was left out."] * is_cut
    notes += ["its times are of kernels alone: [study.residual] with scope = \"forward\" takes them as such."] * (
        KERNELS in scopes)
    return [Measured(_name(source, key, len(found)), [], _from_zero(rows), tuple(notes), {})
            for key, rows in found.items()]


def row_of(metrics: Metrics, end_s: float | None) -> Row:
    """Return the row of an iteration; a decode adds one token to its context."""
    given, queued = metrics.scheduled_requests, metrics.queued_requests
    decodes = given.num_decode_requests
    row = {
        "duration_s": metrics.wall_time, "num_sequences": given.num_prefill_requests + decodes,
        "num_prefills": given.num_prefill_requests, "prefill_tokens": given.sum_prefill_tokens,
        "decode_tokens": decodes,
        "context_tokens": given.sum_prefill_tokens + given.sum_prefill_kv_tokens + given.sum_decode_kv_tokens + decodes,
        "waiting": queued.num_prefill_requests + queued.num_decode_requests,
        "prefill_context_tokens": given.sum_prefill_kv_tokens}
    return row if end_s is None else row | {"start_s": end_s - metrics.wall_time}


def _from_zero(rows: list[Row]) -> list[Row]:
    first = min((row["start_s"] for row in rows if "start_s" in row), default=0.0)
    for row in rows:
        if "start_s" in row:
            row["start_s"] = round(row["start_s"] - first, 9)
    return rows


def _name(source: Source, key: tuple[str, int], count: int) -> str:
    worker, rank = key
    return source.stem if count == 1 else f"{source.stem}-{worker or 'worker'}-{rank}"


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True
