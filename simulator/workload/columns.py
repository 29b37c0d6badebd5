"""What every reader and generator delivers: one array for each property of the requests."""
import msgspec
import numpy as np
from msgspec.structs import replace

from simulator.domain import records

LABELS = ("slo_class", "tenant", "session", "model", "adapter")     # text columns, for policies and breakdowns


class Prompts(msgspec.Struct, frozen=True):
    """Prompts made of pieces of token streams.

    Codes are those of `records.SEGMENT`; own and output streams hold the row numbers of these columns.

    num_segments : int64 (n,), for each request.
    streams, num_tokens : int64 (m,), the segments of all requests, one after the other.
    """

    num_segments: np.ndarray
    streams: np.ndarray
    num_tokens: np.ndarray


class Columns(msgspec.Struct, frozen=True):
    """Requests in any order; arrays are int64 (n,).

    request_ids : int64 (n,) or list of str; None: the row numbers.
    priority : None: all 0.
    max_tokens : None or limits.MISSING: the output length.
    timeout_ns : the client gives up so long after arrival; None or limits.MISSING: never.
    labels : by column, codes (-1: none) and the names behind them.
    prompts : None: nothing is shared.
    """

    arrival_ns: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    request_ids: object = None
    priority: np.ndarray | None = None
    max_tokens: np.ndarray | None = None
    timeout_ns: np.ndarray | None = None
    labels: dict = {}
    prompts: Prompts | None = None

    def __len__(self):
        return len(self.arrival_ns)


def nearest(values: np.ndarray) -> np.ndarray:
    """Return the integers nearest to values >= 0, int64.

    Halves go up, as in simulator.core.clock.
    """
    whole = np.trunc(values)
    return (whole + (values - whole >= 0.5)).astype(np.int64)


def in_arrival_order(columns: Columns) -> Columns:
    """Return the same requests sorted by arrival; ties keep their order."""
    if columns.request_ids is None:
        columns = replace(columns, request_ids=np.arange(len(columns)))
    if np.all(columns.arrival_ns[1:] >= columns.arrival_ns[:-1]):
        return columns
    order = np.argsort(columns.arrival_ns, kind="stable")
    return replace(
        columns,
        arrival_ns=columns.arrival_ns[order],
        prompt_tokens=columns.prompt_tokens[order],
        output_tokens=columns.output_tokens[order],
        request_ids=_take(columns.request_ids, order),
        priority=_take(columns.priority, order),
        max_tokens=_take(columns.max_tokens, order),
        timeout_ns=_take(columns.timeout_ns, order),
        labels={column: (codes[order], names) for column, (codes, names) in columns.labels.items()},
        prompts=columns.prompts and _reorder(columns.prompts, order))


def _take(column, order: np.ndarray):
    if isinstance(column, list):
        return [column[row] for row in order]
    return None if column is None else column[order]


def _reorder(prompts: Prompts, order: np.ndarray) -> Prompts:
    """Return the prompts of rows `order`; own and output streams follow their requests to the new rows."""
    new_row = np.empty(len(order), dtype=np.int64)
    new_row[order] = np.arange(len(order))
    counts = prompts.num_segments[order]
    old_begins = (np.cumsum(prompts.num_segments) - prompts.num_segments)[order]
    new_begins = np.cumsum(counts) - counts
    picked = np.arange(len(prompts.streams)) + np.repeat(old_begins - new_begins, counts)
    streams = prompts.streams[picked]
    of_request = streams & 3 != records.named_stream(0)
    streams[of_request] = (new_row[streams[of_request] >> 2] << 2) | (streams[of_request] & 3)
    return Prompts(counts, streams, prompts.num_tokens[picked])
