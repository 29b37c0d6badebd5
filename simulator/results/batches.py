"""Composition and durations of the batches of iterations: found in passes over blocks of rows."""
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from simulator.results.figures.decimate import column_of, middles
from simulator.results.ranked import Counted, Ranked, median, middle, percentiles_of

NUM_COLUMNS = 250           # of a cloud of points
NUM_BINS = 50
NUM_SIZES = 25
SPREAD = (10, 50, 90)       # percentiles of a histogram
KINDS = ("decodes alone", "prompts")
MS = 1e6

Columns = Mapping[str, np.ndarray]


class Kind(NamedTuple):
    """Iterations of decodes alone, or with prompts.

    x, y : tokens and durations in ms, of all iterations, or of many the extremes of each column of pixels.
    """

    count: int
    median_ms: float
    x: np.ndarray
    y: np.ndarray


class Size(NamedTuple):
    """Iterations of `low` to `high` - 1 tokens."""

    low: int
    high: int
    count: int
    median_ms: float
    longest_ms: float


class Histogram(NamedTuple):
    """A histogram of iterations; bin i reaches from edges[i] to edges[i + 1]."""

    edges: np.ndarray
    counts: np.ndarray
    width: int
    highest: int
    spread: tuple[float, ...]       # percentiles of `SPREAD`; none without iterations


def tokens_of(rows: Columns) -> np.ndarray:
    """Return the tokens of prompts and decodes of each row, int64."""
    return rows["prefill_tokens"].astype(np.int64) + rows["decode_tokens"]


class Batches:
    """Process iterations in two passes, and further ones for medians.

    is_done : no further pass is needed.
    """

    def __init__(self):
        self._kinds = [_Kind() for _ in KINDS]
        self._counts = {"sequences": Counted(), "tokens": Counted()}
        self._sizes: _Sizes | None = None
        self.is_done = False

    def take(self, rows: Columns) -> None:
        """Process a block of rows."""
        tokens, took_ms = tokens_of(rows), rows["duration_ns"] / MS
        if not all(kind.is_done for kind in self._kinds):
            has_prompt = rows["prefill_tokens"] != 0
            for kind, chosen in zip(self._kinds, (~has_prompt, has_prompt), strict=True):
                kind.take(tokens[chosen], took_ms[chosen], rows["replica"][chosen])
        if self._sizes is not None:
            self._sizes.take(tokens, took_ms)
        else:
            for counted, values in zip(self._counts.values(), (rows["sequences"], tokens), strict=True):
                counted.take(values)

    def end_pass(self) -> None:
        """End a pass over all rows."""
        for kind in self._kinds:
            kind.end_pass()
        if self._sizes is None:
            self._sizes = _Sizes(int(self._counts["tokens"].found()[0].max(initial=0)))
        else:
            self._sizes.end_pass()
            self.is_done = self._sizes.is_done and all(kind.is_done for kind in self._kinds)

    def kinds(self) -> dict[str, Kind]:
        """Return the iterations of each of `KINDS`, in their order."""
        return {name: kind.found() for name, kind in zip(KINDS, self._kinds, strict=True) if kind.ranked.count}

    def sizes(self) -> list[Size]:
        """Return the iterations of each size of batch."""
        return self._sizes.found()

    def histogram(self, name: str) -> Histogram:
        """Return the histogram of `sequences` or `tokens`."""
        values, times = self._counts[name].found()
        highest = int(values.max(initial=0))
        width = -(-(highest + 1) // NUM_BINS)
        edges = np.arange(highest // width + 2) * width
        counts = np.zeros(len(edges) - 1, np.int64)
        np.add.at(counts, values // width, times)
        spread = tuple(percentiles_of(values, times, SPREAD).tolist()) if len(values) else ()
        return Histogram(edges, counts, width, highest, spread)


class _Kind:
    """A cloud of points, of which the first pass finds the ends, and their median duration."""

    def __init__(self):
        self.ranked = Ranked(middle)
        self._low, self._high = np.iinfo(np.int64).max, 0
        self._pass = 0
        self._few: list[tuple[np.ndarray, ...]] = []
        self._lows, self._highs = np.full(NUM_COLUMNS, np.inf), np.full(NUM_COLUMNS, -np.inf)

    @property
    def is_done(self) -> bool:
        return self._pass > 1 and self.ranked.is_done

    def take(self, tokens: np.ndarray, took_ms: np.ndarray, replica: np.ndarray) -> None:
        if not len(tokens):
            return
        if not self.ranked.is_done:
            self.ranked.take(took_ms)
        if self._pass == 0:
            self._low, self._high = min(self._low, int(tokens.min())), max(self._high, int(tokens.max()))
        elif self._pass == 1 and self._is_small:
            self._few.append((tokens, replica, took_ms))
        elif self._pass == 1:
            column = column_of(tokens, self._low, self._high, NUM_COLUMNS)
            np.minimum.at(self._lows, column, took_ms)
            np.maximum.at(self._highs, column, took_ms)

    def end_pass(self) -> None:
        self._pass += 1
        if not self.ranked.is_done:
            self.ranked.end_pass()

    def found(self) -> Kind:
        if self._is_small:
            tokens, replica, took_ms = (np.concatenate(parts) for parts in zip(*self._few, strict=True))
            order = np.lexsort((replica, tokens))
            return Kind(self.ranked.count, median(self.ranked), tokens[order], took_ms[order])
        filled = np.flatnonzero(self._lows <= self._highs)
        y = np.stack((self._lows[filled], self._highs[filled]), axis=1).reshape(-1)
        x = np.repeat(middles(filled, self._low, self._high, NUM_COLUMNS), 2)
        return Kind(self.ranked.count, median(self.ranked), x, y)

    @property
    def _is_small(self) -> bool:
        return self.ranked.count <= 2 * NUM_COLUMNS


class _Sizes:
    """Durations by size of batch."""

    def __init__(self, most_tokens: int):
        self._edges = np.unique(np.geomspace(1, max(2, most_tokens + 1), NUM_SIZES).round().astype(np.int64))
        self._ranked = [Ranked(middle) for _ in self._edges[1:]]
        self._longest_ms = np.zeros(len(self._ranked))

    @property
    def is_done(self) -> bool:
        return all(ranked.is_done for ranked in self._ranked)

    def take(self, tokens: np.ndarray, took_ms: np.ndarray) -> None:
        group = (np.searchsorted(self._edges, tokens, "right") - 1).astype(np.int8)     # -1: no token
        took_ms = took_ms[np.argsort(group, kind="stable")]
        ends = np.cumsum(np.bincount(group + 1, minlength=len(self._edges)))
        for number, (ranked, (first, last)) in enumerate(zip(self._ranked, pairwise(ends.tolist()), strict=True)):
            if last > first and not ranked.is_done:
                ranked.take(took_ms[first:last])
                self._longest_ms[number] = max(self._longest_ms[number], took_ms[first:last].max())

    def end_pass(self) -> None:
        for ranked in self._ranked:
            if not ranked.is_done:
                ranked.end_pass()

    def found(self) -> list[Size]:
        return [Size(int(low), int(high), ranked.count, median(ranked), float(longest_ms))
                for low, high, ranked, longest_ms in zip(self._edges[:-1], self._edges[1:], self._ranked,
                                                         self._longest_ms, strict=True) if ranked.count]
