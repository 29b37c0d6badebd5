"""Texts that requests share, of requests that come in chunks: rows of segments, and the public part of each text."""
import numpy as np

from simulator.domain import records
from simulator.workload.base import Workload

MOST_SEGMENTS = 2               # of a prompt: a system prompt, and the text behind it


def laid_out(part: Workload) -> np.ndarray:
    """Return the segments of a chunk, `MOST_SEGMENTS` rows for each request.

    Requests with fewer have blank rows.
    """
    counts = part.demands["num_segments"].astype(np.int64)
    table = np.zeros(MOST_SEGMENTS * len(part), records.SEGMENT)
    shifts = MOST_SEGMENTS * np.arange(len(part)) - (np.cumsum(counts) - counts)
    table[np.repeat(shifts, counts) + np.arange(len(part.segments))] = part.segments
    return table


def public_tokens(part: Workload, first: int) -> np.ndarray:
    """Return the leading tokens of each text that others may share.

    int32 (requests,), as `kv.content` does where no prompt has the output of another request.

    first : row of the first request.
    """
    counts, streams = part.demands["num_segments"].astype(np.int64), part.segments["stream"]
    request = np.repeat(np.arange(len(part)), counts)
    num_own = np.append(0, np.cumsum(((streams & 3) != 0) & (streams >> 2 == first + request)))
    is_public = num_own[1:] == np.repeat(num_own[np.cumsum(counts) - counts], counts)
    tokens = np.bincount(request, np.where(is_public, part.segments["num_tokens"], 0), len(part))
    return np.minimum(tokens, np.iinfo(np.int32).max - 1).astype(np.int32)
