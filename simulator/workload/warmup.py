"""Warm-up requests, sent before all others; they are at the end of the table."""
import numpy as np
from msgspec.structs import replace

from simulator.domain import records
from simulator.domain.load import Warmup
from simulator.workload.columns import LABELS, Columns, Prompts, reordered, timeouts_of
from simulator.workload.limits import MISSING
from simulator.workload.script import Edges, Group, Script, Slots

ONE_TOKEN = "one_token"
ALL_AT_ONCE = Group(np.empty(0, np.int64))


def with_first_turns(columns: Columns, script: Script, concurrency: int | None) -> tuple[Columns, Script]:
    """Return a script in which the last rows, which it lacks, come before all others.

    Parameters
    ----------
    concurrency : of the added requests; None: all come at once.
    """
    sizes = np.ones(len(columns) - num_rows_of(script), np.int64)
    return columns, before_all(columns, script, sizes, _at_once(concurrency, len(sizes)))


def with_primers(columns: Columns, script: Script, lane_of: np.ndarray, lanes: int,
                 given: Warmup) -> tuple[Columns, Script]:
    """Return the requests, and the script in which primers come before all others.

    The primers of a lane are sent one after the other, then `requests_per_lane` requests of one token with the primers'
    prompts, cyclically, or, in a lane without primers, with the prompt of its first request; lanes run in parallel.

    Source of requests of one token: ai-dynamo/aisimulate, docs/agentic-warmup.md.

    Parameters
    ----------
    columns : the requests of `script`, and behind them the primers.
    lane_of : int64 (m,), the lane of each primer, ascending.
    """
    count, number = num_rows_of(script), given.requests_per_lane
    rows = np.arange(count, len(columns))
    if given.primers == ONE_TOKEN:
        columns = _with_one_token(columns, rows)
    if number:
        prompts = [np.resize(rows[lane_of == lane] if np.any(lane_of == lane) else _first_row(script, lane), number)
                   for lane in range(lanes)]
        columns = _appended(columns, np.concatenate(prompts), "primer")
        columns = _with_one_token(columns, np.arange(len(columns) - lanes * number, len(columns)))
        lane_of = np.append(lane_of, np.repeat(np.arange(lanes), number))
        order = np.argsort(lane_of, kind="stable")
        columns = reordered(columns, np.append(np.arange(count), count + order))
    sizes = np.bincount(lane_of, minlength=lanes)
    return columns, before_all(columns, script, sizes[sizes > 0])


def with_copies(columns: Columns, script: Script, copies: int, concurrency: int | None) -> tuple[Columns, Script]:
    """Return the requests and copies of the first one, which come before all.

    Like vLLM's `bench serve --num-warmups`: with the same concurrency; the rest begins when all copies have ended.

    Parameters
    ----------
    concurrency : of the copies; None: all come at once.
    """
    columns = _appended(columns, np.zeros(copies, np.int64), "warmup")
    return columns, before_all(columns, script, np.ones(copies, np.int64), _at_once(concurrency, copies))


def _at_once(concurrency: int | None, count: int) -> Group:
    """Return a group of `count` plays."""
    return Group(np.arange(count), None if concurrency is None else Slots(np.zeros(min(concurrency, count), np.int64)))


def num_rows_of(script: Script) -> int:
    """Return the number of requests of a script."""
    return len(script.start_ns) if script.play_begins is None else int(script.play_begins[-1])


def _first_row(script: Script, play: int) -> int:
    """Return the first row of a play that waits for no other."""
    if script.play_begins is None:
        return play
    rows = np.arange(script.play_begins[play], script.play_begins[play + 1])
    if script.edges is not None:
        rows = np.setdiff1d(rows, script.edges.targets)
    return int(rows[0 if script.offset_ns is None else np.argmin(script.offset_ns[rows])])


def _with_one_token(columns: Columns, rows: np.ndarray) -> Columns:
    """Return the requests with an output of one token for the given rows."""
    output_tokens, max_tokens = columns.output_tokens.copy(), columns.max_tokens
    output_tokens[rows] = 1
    if max_tokens is not None:
        max_tokens = max_tokens.copy()
        max_tokens[rows] = MISSING
    expected_tokens = columns.expected_tokens
    if expected_tokens is not None:
        expected_tokens = expected_tokens.copy()
        expected_tokens[rows] = np.minimum(expected_tokens[rows], 1)
    return replace(columns, output_tokens=output_tokens, max_tokens=max_tokens, expected_tokens=expected_tokens)


def before_all(columns: Columns, script: Script, sizes: np.ndarray, group: Group = ALL_AT_ONCE,
               start_ns: np.ndarray | None = None) -> Script:
    """Return a script with added plays before all others, each a request chain.

    Their rows are behind all others.

    sizes : int64 (k,), number of requests of each added play.
    group : slots and times of the added plays; their indices are set here.
    start_ns : int64 (k,), earliest start of each added play; None: all at once.
    """
    added, num_added, num_rows = len(sizes), int(sizes.sum()), num_rows_of(script)
    if not added:
        return script
    begins = num_rows + np.append(0, np.cumsum(sizes))
    joined = _joined(columns, num_rows, num_rows + num_added)
    has_plays = script.play_begins is not None or num_added > added or len(joined)
    before = np.arange(num_rows + 1) if script.play_begins is None else script.play_begins
    targets = np.setdiff1d(np.arange(num_rows, num_rows + num_added), begins)
    none_ns = np.zeros(num_added, np.int64)

    def longer(values, more):
        return None if values is None else np.append(values, more)

    return replace(
        script,
        groups=(replace(group, plays=len(script.start_ns) + np.arange(added)),
                *(replace(group, after=0 if group.after < 0 else group.after + 1) for group in script.groups)),
        start_ns=np.append(script.start_ns, np.zeros(added, np.int64) if start_ns is None else start_ns),
        play_begins=np.append(before, begins[1:]) if has_plays else None,
        offset_ns=longer(script.offset_ns, none_ns),
        edges=_with_edges(script.edges, joined, np.stack([targets - 1, targets], axis=1)),
        rest_ns=longer(script.rest_ns, none_ns), rest_share=longer(script.rest_share, none_ns),
        timeout_ns=timeouts_of(columns))


def _joined(columns: Columns, first: int, end: int) -> np.ndarray:
    """Return the requests that wait for rows `first` .. `end` - 1, as (source, target), int64 (k, 2)."""
    if columns.waits is None:
        return np.empty((0, 2), np.int64)
    sources, targets = columns.waits.sources, columns.waits.targets
    is_one = (sources >= first) & (sources < end) & (targets < first)
    return np.stack([sources[is_one], targets[is_one]], axis=1)


def _with_edges(edges: Edges | None, waiting: np.ndarray, chained: np.ndarray) -> Edges | None:
    """Return the edges, and additional ones without delay.

    Sources of the pairs `waiting` must complete; targets of the pairs `chained` come however their sources ended.
    """
    pairs = np.concatenate([waiting, chained])
    if not len(pairs):
        return edges
    if edges is None:
        edges = Edges(*np.empty((3, 0), np.int64), np.empty(0, bool))
    before = np.zeros(len(edges.sources), bool) if edges.from_any_end is None else edges.from_any_end
    return Edges(
        np.append(edges.sources, pairs[:, 0]), np.append(edges.targets, pairs[:, 1]),
        np.append(edges.delays_ns, np.zeros(len(pairs), np.int64)),
        np.append(edges.from_dispatch, np.zeros(len(pairs), bool)),
        np.concatenate([before, np.zeros(len(waiting), bool), np.ones(len(chained), bool)]))


def _appended(columns: Columns, rows: np.ndarray, name: str) -> Columns:
    """Return the requests, followed by copies of some rows, which wait for no request and have equal prompts."""
    ids = columns.request_ids
    if isinstance(ids, list):
        ids = [*ids, *(f"{name} {number}" for number in range(len(rows)))]
    else:
        ids = np.append(ids, min(int(ids.min(initial=0)), 0) - 1 - np.arange(len(rows)))

    def longer(values):
        return None if values is None else np.append(values, values[rows])

    return replace(
        columns, request_ids=ids, prompts=_prompts(columns, rows), arrival_ns=longer(columns.arrival_ns),
        prompt_tokens=longer(columns.prompt_tokens), output_tokens=longer(columns.output_tokens),
        priority=longer(columns.priority), max_tokens=longer(columns.max_tokens),
        timeout_ns=None if columns.timeout_ns is None else np.append(
            columns.timeout_ns, np.full(len(rows), MISSING)),
        waits=columns.waits and replace(
            columns.waits, plays=np.append(columns.waits.plays, columns.waits.plays.max() + 1 + np.arange(len(rows))),
            not_before_ns=longer(columns.waits.not_before_ns)),
        clients=None, expected_tokens=longer(columns.expected_tokens),
        facts={fact: longer(values) for fact, values in columns.facts.items()},
        labels={column: (longer(columns.labels[column][0]), columns.labels[column][1])
                for column in LABELS if column in columns.labels})


def _prompts(columns: Columns, rows: np.ndarray) -> Prompts:
    """Return the prompts, followed by copies of the prompts of some rows.

    Rows beyond the table in streams are requests that were left out; they are renumbered to make room for the copies.
    """
    count = len(columns)
    prompts = columns.prompts or Prompts(np.zeros(count, np.int64), *np.zeros((2, 0), np.int64))
    streams = prompts.streams.copy()
    is_left_out = (streams & 3 != records.named_stream(0)) & (streams >> 2 >= count)
    streams[is_left_out] += len(rows) << 2
    ends = np.cumsum(prompts.num_segments)
    pieces = [(np.array([records.own_stream(row)]), columns.prompt_tokens[row:row + 1])
              if prompts.num_segments[row] == 0 else
              tuple(each[ends[row] - prompts.num_segments[row]:ends[row]] for each in (streams, prompts.num_tokens))
              for row in rows.tolist()]
    return Prompts(np.append(prompts.num_segments, [len(each) for each, _ in pieces]),
                   np.concatenate([streams, *(each for each, _ in pieces)]),
                   np.concatenate([prompts.num_tokens, *(each for _, each in pieces)]))
