"""The part of each prompt that earlier requests share, as in a prefix cache without limits."""
import numpy as np

from simulator.domain import records
from simulator.workload.base import Workload


class _Node:
    """A boundary between two segments of texts, with the continuations of known texts.

    longest : stream -> most tokens of it that follow.
    nexts : (stream, tokens) -> the node behind them.
    """

    __slots__ = ("longest", "nexts")

    def __init__(self):
        self.longest, self.nexts = {}, {}


def shared_tokens(workload: Workload) -> np.ndarray:
    """Return the leading tokens of each prompt that an earlier row has, int64 (n,).

    The shared tokens are a prefix of the earlier request's text: its prompt and output without the last token, the
    KV of which is not computed. Requests with different adapters share nothing. The result does not depend on time: all
    rows before a row count.
    """
    shared = np.zeros(len(workload), np.int64)
    if not len(workload.segments):
        return shared
    streams, num_tokens = workload.segments["stream"].tolist(), workload.segments["num_tokens"].tolist()
    begins, counts = (workload.demands[name].tolist() for name in ("segments_begin", "num_segments"))
    prompts, adapters = workload.requests["prompt_tokens"].tolist(), workload.demands["adapter"].tolist()
    outputs = np.clip(workload.outcomes["output_tokens"], 1, workload.demands["max_tokens"]).tolist()
    roots, public = {}, _public_streams(workload)
    for row, (begin, count) in enumerate(zip(begins, counts, strict=True)):
        pieces = list(zip(streams[begin:begin + count], num_tokens[begin:begin + count], strict=True))
        pieces = pieces or [(records.own_stream(row), prompts[row])]
        root = roots.setdefault(adapters[row], _Node())
        shared[row] = _known(root, pieces)
        if outputs[row] > 1:
            pieces.append((records.output_stream(row), outputs[row] - 1))
        _learn(root, pieces, public)
    return shared


def _public_streams(workload: Workload) -> set[int]:
    """Return the streams that more than one request may use."""
    streams = workload.segments["stream"]
    owners = np.repeat(np.arange(len(workload)), workload.demands["num_segments"])
    is_named = streams & 3 == records.named_stream(0)
    return set(np.unique(streams[is_named | (streams >> 2 != owners)]).tolist())


def _known(node: _Node, pieces: list[tuple[int, int]]) -> int:
    """Return how many tokens of a text are known; no known text continues behind a part of a segment."""
    known = 0
    for piece in pieces:
        stream, tokens = piece
        known += min(tokens, node.longest.get(stream, 0))
        node = node.nexts.get(piece)
        if node is None:
            break
    return known


def _learn(node: _Node, pieces: list[tuple[int, int]], public: set[int]) -> None:
    """Add a text up to its private part."""
    for piece in pieces:
        stream, tokens = piece
        if stream not in public:
            break
        if tokens > node.longest.get(stream, 0):
            node.longest[stream] = tokens
        node = node.nexts.setdefault(piece, _Node())
