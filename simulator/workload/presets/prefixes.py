"""Prompts with shared beginnings."""
import numpy as np

from simulator.domain import records
from simulator.workload.columns import Prompts


def with_prefixes(chosen: np.ndarray, prefix_tokens: int, own_tokens: np.ndarray,
                  questions: np.ndarray | None = None, first_row: int = 0) -> Prompts:
    """Return prompts of a prefix and other tokens after it.

    Parameters
    ----------
    chosen : int64 (n,), number of the prefix; -1: none.
    own_tokens : int64 (n,), after the prefix.
    questions : int64 (n,), numbers of the tokens after it, other than those of prefixes; None: of the request alone.
    first_row : of the requests.
    """
    rows = np.flatnonzero(chosen >= 0)
    behind = records.own_stream(first_row + rows) if questions is None else records.named_stream(questions[rows])
    streams = np.column_stack([records.named_stream(chosen[rows]), behind])
    num_tokens = np.column_stack([np.full(len(rows), prefix_tokens), own_tokens[rows]])
    kept = num_tokens > 0
    counts = np.zeros(len(chosen), np.int64)
    counts[rows] = kept.sum(axis=1)
    return Prompts(counts, streams[kept], num_tokens[kept])
