"""Requests of plays and their dependencies, collected row by row for columns."""
from collections.abc import Iterable

import numpy as np

from simulator.domain import records
from simulator.workload.columns import Columns, Prompts, Waits
from simulator.workload.formats.dependency_cycles import rows_in_cycles


class AgentGraphs:
    """Collects requests and their dependencies."""

    def __init__(self):
        self.arrival_ns, self.prompt_tokens, self.output_tokens = [], [], []
        self.plays, self.not_before_ns, self.request_ids, self.sessions = [], [], [], []
        self.histories = []
        self.sources, self.targets, self.delays_ns, self.from_dispatch = [], [], [], []

    def __len__(self):
        return len(self.arrival_ns)

    def add(self, play: int, prompt_tokens: int, output_tokens: int, *, at_ns: int = 0, not_before_ns: int = 0) -> int:
        """Add a request; return its row.

        Parameters
        ----------
        play : code of its play, from 0.
        at_ns : when it comes, if it waits for no other.
        not_before_ns : its earliest time after the play's start.
        """
        self.arrival_ns.append(at_ns)
        self.prompt_tokens.append(prompt_tokens)
        self.output_tokens.append(output_tokens)
        self.plays.append(play)
        self.not_before_ns.append(not_before_ns)
        return len(self.arrival_ns) - 1

    def wait(self, source: int, target: int, delay_ns: int, from_dispatch: bool = False) -> None:
        """Let a request wait for the end of another one, or for its arrival."""
        self.sources.append(source)
        self.targets.append(target)
        self.delays_ns.append(delay_ns)
        self.from_dispatch.append(from_dispatch)

    def columns(self, prompts: Prompts | None = None, **others) -> Columns:
        """Return the requests.

        Parameters
        ----------
        prompts : None: from `histories`, one for each request, or, if these are empty, not shared.
        others : further fields of Columns.
        """
        if prompts is None and self.histories:
            prompts = prompts_of_histories(self.histories)
        if any(session is not None for session in self.sessions):
            others["labels"] = {"session": coded(self.sessions)} | others.get("labels", {})
        if self.request_ids:
            others["request_ids"] = self.request_ids
        return Columns(_int64(self.arrival_ns), _int64(self.prompt_tokens), _int64(self.output_tokens),
                       prompts=prompts, waits=self.waits(), **others)

    def waits(self) -> Waits | None:
        """Return the dependencies; None: there are none, and each request is a play."""
        if not self.sources and len(set(self.plays)) == len(self):
            return None
        not_before_ns = _int64(self.not_before_ns) if any(self.not_before_ns) else None
        return Waits(*map(_int64, (self.plays, self.sources, self.targets, self.delays_ns)),
                     np.array(self.from_dispatch, bool), not_before_ns)

    def rows_in_cycles(self) -> list[int]:
        """Return the requests that wait for themselves, through others."""
        return rows_in_cycles(len(self), self.sources, self.targets)


def ns_of_ms(milliseconds: float) -> int:
    """Return milliseconds >= 0 as whole nanoseconds; halves go up."""
    return int(milliseconds * 1e6 + 0.5)


def ns_of_s(seconds: float) -> int:
    """Return seconds >= 0 as whole nanoseconds; halves go up."""
    return int(seconds * 1e9 + 0.5)


def _int64(values: list) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def coded(texts: list) -> tuple[np.ndarray, list[str]]:
    """Return texts as codes, -1 for None, and the distinct texts behind them."""
    names = {text: code for code, text in enumerate(dict.fromkeys(each for each in texts if each is not None))}
    return np.array([names.get(text, -1) for text in texts], dtype=np.int64), list(names)


def extended(history: list[tuple], *segments: tuple) -> list[tuple]:
    """Return a prompt, pairs of stream and tokens, with additional pairs at its end."""
    return history + [segment for segment in segments if segment[1] > 0]


def cut(history: list[tuple], num_tokens: int) -> list[tuple]:
    """Return the first tokens of a prompt."""
    kept = []
    for stream, tokens in history:
        if num_tokens <= 0:
            break
        kept.append((stream, min(tokens, num_tokens)))
        num_tokens -= tokens
    return kept


def length_of(history: list[tuple]) -> int:
    """Return the tokens of a prompt."""
    return sum(tokens for _, tokens in history)


def prompts_of_histories(histories: list[list[tuple]]) -> Prompts:
    """Return prompts given as pairs of stream and tokens."""
    flat = np.array([pair for history in histories for pair in history], dtype=np.int64).reshape(-1, 2)
    return Prompts(_int64([len(history) for history in histories]), flat[:, 0].copy(), flat[:, 1].copy())


def output_of(row: int, num_tokens: int) -> tuple[int, int]:
    """Return the segment of a request's whole output."""
    return records.output_stream(row), num_tokens


def own_of(row: int, num_tokens: int) -> tuple[int, int]:
    """Return the segment of a request's own tokens."""
    return records.own_stream(row), num_tokens


def components(num_rows: int, sources: Iterable[int], targets: Iterable[int]) -> list[int]:
    """Return for each row the code of its play; rows joined by an edge have one play.

    Codes count from 0, by first row.
    """
    root = list(range(num_rows))

    def find(row):
        while root[row] != row:
            root[row] = root[root[row]]
            row = root[row]
        return row

    for source, target in zip(sources, targets, strict=True):
        first, second = sorted((find(source), find(target)))
        root[second] = first
    codes = {}
    return [codes.setdefault(find(row), len(codes)) for row in range(num_rows)]
