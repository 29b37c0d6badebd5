"""One demand from a log: its times on the clock of the metrics, and requests that it lacks from the metrics."""
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simulator.study.reconstruct.access_log import UNKNOWN, Requests
from simulator.study.reconstruct.demand import Demand
from simulator.study.reconstruct.skew import Skew, windows_together
from simulator.study.reconstruct.windows import Record

FEWEST, SHARE = 5, 0.5          # a window lacks rows that lacks more than both: requests, and share of its requests


class Hole(NamedTuple):
    """A time in which a log has fewer requests than the metrics count."""

    begin_s: float
    end_s: float
    lacking: int


def holes_of(log: Requests, records: Sequence[Record], skew: Skew | None) -> list[Hole]:
    """Return the windows that a log lacks requests of."""
    if skew is None:
        return []
    edges, counts = windows_together(records)
    logged = np.diff(np.searchsorted(log.arrival_s - skew.best_s, edges), axis=1)[:, 0] if len(edges) else counts
    lacking = counts - logged
    is_hole = (lacking > FEWEST) & (lacking > SHARE * counts)
    return [Hole(float(edges[i, 0]), float(edges[i, 1]), int(lacking[i])) for i in np.flatnonzero(is_hole)]


def logged_demand(generator: np.random.Generator, log: Requests, skew: Skew | None, other: Demand | None,
                  holes: Sequence[Hole]) -> Demand:
    """Return the demand of a log.

    other : demand of the metrics, for its holes and unknown lengths; None: the log alone is read.
    """
    jitter_s = generator.uniform(0, log.resolution_s, len(log))
    arrival_s = log.arrival_s + jitter_s - (skew.best_s if skew else 0.0)
    prompts, outputs = _known(generator, log.prompt_tokens), _known(generator, log.output_tokens)
    parts = [(arrival_s, prompts, outputs)]
    for hole in holes if other is not None else ():
        inside = np.flatnonzero((other.arrival_s >= hole.begin_s) & (other.arrival_s < hole.end_s))
        chosen = generator.choice(inside, min(hole.lacking, len(inside)), replace=False)
        parts.append((other.arrival_s[chosen], other.prompt_tokens[chosen], other.output_tokens[chosen]))
    arrival_s, prompts, outputs = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(arrival_s, kind="stable")
    return Demand(arrival_s[order], prompts[order], outputs[order])


def _known(generator: np.random.Generator, tokens: np.ndarray) -> np.ndarray:
    """Return lengths; an unknown one is that of another row."""
    known = tokens[tokens != UNKNOWN]
    if len(known) == len(tokens):
        return tokens
    drawn = generator.choice(known, len(tokens)) if len(known) else np.ones(len(tokens), np.int64)
    return np.where(tokens == UNKNOWN, drawn, tokens)
