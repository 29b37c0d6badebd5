"""The common result of all readers and generators: one array for each property of the requests."""
import msgspec
import numpy as np
from msgspec.structs import replace

from simulator.domain import records
from simulator.domain.load import Load
from simulator.workload.limits import MISSING

# Properties that only some workloads have, in `Columns.facts`: a predicted output length; reasoning tokens, which begin
# the output and are not shown; images in the prompt, and their tokens.
QUEUE_FACTS = ("strict_priority", "priority_jump_s")      # the latter in ns, as all times
FACTS = ("predicted_tokens", "reasoning_tokens", "num_images", "image_tokens")
ROWWISE = ("arrival_ns", "prompt_tokens", "output_tokens", "request_ids", "priority", "max_tokens", "timeout_ns",
           "expected_tokens")
# text columns, for policies and breakdowns
LABELS = ("slo_class", "tenant", "session", "model", "adapter", "grammar")


class Prompts(msgspec.Struct, frozen=True):
    """Prompts made of pieces of token streams.

    Codes are defined in `records.SEGMENT`; own and output streams hold row numbers.

    num_segments : int64 (n,), for each request.
    streams, num_tokens : int64 (m,), the segments of all requests, one after the other.
    """

    num_segments: np.ndarray
    streams: np.ndarray
    num_tokens: np.ndarray


class Waits(msgspec.Struct, frozen=True):
    """Dependencies: requests that wait for others; arrays are int64.

    A play is a session, or any acyclic graph of requests.

    plays : (n,) number of each request's play, 0 .. p - 1.
    sources, targets : (m,) rows of one play; the target waits for the source.
    delays_ns : (m,) >= 0, from the source's end to the target.
    from_dispatch : bool (m,), the delay counts from the source's arrival instead.
    not_before_ns : (n,) earliest time of each request after the play's start; None: 0.
    """

    plays: np.ndarray
    sources: np.ndarray
    targets: np.ndarray
    delays_ns: np.ndarray
    from_dispatch: np.ndarray
    not_before_ns: np.ndarray | None = None


class Clients(msgspec.Struct, frozen=True):
    """Clients with loads of their own, and their requests.

    codes : int64 (n,), the client of each request; -1: [workload.load] sends it. A play has one client.
    loads : the load of each client.
    think_streams : for each client, the name of the random stream of its think times.
    opens_ns : for each client, int64, when its slots open, from its first stay on; None: as its load says.
    stays_ns : for each client, int64 (w, 2), the intervals in which its slots send requests, ascending and disjoint;
        None: always.
    are_guesses : for each client, whether only the end bounds its requests, so there may be too few or too many.
    """

    codes: np.ndarray
    loads: tuple[Load, ...]
    think_streams: tuple[str, ...]
    opens_ns: tuple[np.ndarray | None, ...]
    stays_ns: tuple[np.ndarray | None, ...]
    are_guesses: tuple[bool, ...]


class Columns(msgspec.Struct, frozen=True):
    """Requests in any order; arrays are int64 (n,).

    request_ids : int64 (n,) or list of str; None: the row numbers.
    priority : None: all 0.
    max_tokens : None or limits.MISSING: the output length; 0: the client declares no limit, see budgets.
    timeout_ns : time after arrival at which the client gives up; None or limits.MISSING: never.
    labels : by column, codes (-1: none) and the names behind them.
    prompts : None: nothing is shared.
    adds_to : int64 (n,), row of the turn before; -1: none. Its prompt and its output precede the tokens in `prompts`
        and `prompt_tokens`, which then hold only the tokens that each turn adds. None: prompts are whole. Resolved by
        `history.composed` before rows move.
    waits : None: each request comes at its `arrival_ns`. Else the `arrival_ns` of a request that waits is not used.
    facts : by column of `FACTS` and `QUEUE_FACTS`, int64 (n,), limits.MISSING: not known; absent if no source gives it.
    expected_tokens : predicted output lengths that policies read, -1: unknown. None: all are unknown.
    most : the number of first requests that come; 0: all come.
    clients : None: all come as [workload.load] says.
    duration_s : all arrivals are before this time, where the source itself sets an end; None: it does not.
    from_engine : clients react to a request's end in the engine, not to the last token that they see.
    notes : data that was left out or replaced, a sentence each, for the diagnosis.
    is_guess : only the end of [workload.load] bounds the requests, so there may be too few or too many; requests of
        clients with loads of their own aside.
    images : codes of the named streams that are images, ascending: pieces of prompts that encoders compute; None: there
        are none. image_work : structured array, `domain.items.WORK`, of each; None: it is not known.
    origin_ns : the time in the trace that is 0 here.
    has_times : False: the source has no start times of plays, `arrival_ns` is 0; slots or lanes release them.
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
    adds_to: np.ndarray | None = None
    waits: Waits | None = None
    facts: dict = {}
    expected_tokens: np.ndarray | None = None
    most: int = 0
    clients: Clients | None = None
    duration_s: float | None = None
    from_engine: bool = False
    notes: tuple[str, ...] = ()
    is_guess: bool = False
    has_times: bool = True
    origin_ns: int = 0
    images: np.ndarray | None = None
    image_work: np.ndarray | None = None

    def __len__(self):
        return len(self.arrival_ns)


def stream_of(client: str, purpose: str) -> str:
    """Return the name of a client's random stream for one purpose."""
    return f"client/{client}/{purpose}"


def by_code(codes: np.ndarray) -> list[np.ndarray]:
    """Return the indices of each code that occurs, ascending; by code."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def timeouts_of(columns: Columns) -> np.ndarray | None:
    """Return when clients give up, as `Columns.timeout_ns`; None: no client does."""
    is_given = columns.timeout_ns is not None and np.any(columns.timeout_ns != MISSING)
    return columns.timeout_ns if is_given else None


def nearest(values: np.ndarray) -> np.ndarray:
    """Return the integers nearest to values >= 0, int64.

    Halves go up, as in simulator.core.clock.
    """
    whole = np.trunc(values)
    return (whole + (values - whole >= 0.5)).astype(np.int64)


def in_arrival_order(columns: Columns) -> Columns:
    """Return the requests sorted by arrival; ties keep their order."""
    if columns.request_ids is None:
        columns = replace(columns, request_ids=np.arange(len(columns)))
    if np.all(columns.arrival_ns[1:] >= columns.arrival_ns[:-1]):
        return columns
    return reordered(columns, np.argsort(columns.arrival_ns, kind="stable"))


def reordered(columns: Columns, order: np.ndarray) -> Columns:
    """Return all requests in another order; streams and waits follow their rows."""
    if columns.request_ids is None:
        columns = replace(columns, request_ids=np.arange(len(columns)))
    new_row = np.empty(len(order), dtype=np.int64)
    new_row[order] = np.arange(len(order))
    return replace(
        columns, **_rows(columns, order),
        prompts=columns.prompts and _reorder(columns.prompts, order, new_row),
        waits=columns.waits and replace(
            columns.waits, plays=columns.waits.plays[order], sources=new_row[columns.waits.sources],
            targets=new_row[columns.waits.targets], not_before_ns=_take(columns.waits.not_before_ns, order)),
        clients=columns.clients and replace(columns.clients, codes=columns.clients.codes[order]))


def first_rows(columns: Columns) -> Columns:
    """Return the first `most` requests.

    Of the other requests only the streams are left, and no request waits for them.
    """
    count = min(columns.most or len(columns), len(columns))
    part = slice(count)
    waits, prompts = columns.waits, columns.prompts
    if waits is not None:
        stays = (waits.sources < count) & (waits.targets < count)
        waits = Waits(waits.plays[part], waits.sources[stays], waits.targets[stays], waits.delays_ns[stays],
                      waits.from_dispatch[stays], _take(waits.not_before_ns, part))
    if prompts is not None:
        total = int(prompts.num_segments[part].sum())
        prompts = Prompts(prompts.num_segments[part], prompts.streams[:total], prompts.num_tokens[:total])
    return replace(
        columns, **_rows(columns, part), prompts=prompts, waits=waits, most=0,
        clients=columns.clients and replace(columns.clients, codes=columns.clients.codes[part]))


def _rows(columns: Columns, order: np.ndarray | slice) -> dict:
    """Return the fields with one value a row, of the rows `order`."""
    return {
        **{name: _take(getattr(columns, name), order) for name in ROWWISE},
        "labels": {column: (codes[order], names) for column, (codes, names) in columns.labels.items()},
        "facts": {column: values[order] for column, values in columns.facts.items()},
    }


def _take(column, order: np.ndarray | slice):
    if isinstance(column, list) and isinstance(order, slice):
        return column[order]
    if isinstance(column, list):
        return [column[row] for row in order]
    return None if column is None else column[order]


def _reorder(prompts: Prompts, order: np.ndarray, new_row: np.ndarray) -> Prompts:
    """Return the prompts of rows `order`; own and output streams follow their requests to the new rows."""
    counts = prompts.num_segments[order]
    old_begins = (np.cumsum(prompts.num_segments) - prompts.num_segments)[order]
    new_begins = np.cumsum(counts) - counts
    picked = np.arange(len(prompts.streams)) + np.repeat(old_begins - new_begins, counts)
    streams = prompts.streams[picked]
    of_request = (streams & 3 != records.named_stream(0)) & (streams >> 2 < len(order))     # not of rows left out
    streams[of_request] = (new_row[streams[of_request] >> 2] << 2) | (streams[of_request] & 3)
    return Prompts(counts, streams, prompts.num_tokens[picked])
