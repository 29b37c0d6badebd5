"""Texts seen so far, as a radix tree: which tokens of a prompt are those of earlier prompts and answers.

The engine and the native trace know a prompt as pieces of token streams, each the first tokens of its stream. The tree
gives every place in a text one such name, (stream, offset): equal beginnings of texts have equal names, to the token.
"""
from collections.abc import Sequence

import numpy as np

from simulator.domain import records


class _Edge:
    """Tokens that follow each other in some text, and the edges that go on from their end."""

    __slots__ = ("ids", "next", "stream")

    def __init__(self, ids: np.ndarray, stream: int):
        self.ids, self.stream, self.next = ids, stream, {}

    def cut(self, length: int) -> None:
        """Keep the first tokens; the rest goes on from their end."""
        rest = _Edge(self.ids[length:], self.stream)
        self.ids, rest.next = self.ids[:length], self.next
        self.next = {int(rest.ids[0]): rest}


class Texts:
    """All prompts and answers so far; texts with different salts share nothing."""

    def __init__(self):
        self._roots: dict[str, dict[int, _Edge]] = {}

    def add(self, row: int, prompt: np.ndarray, answer: np.ndarray, salt: str = "") -> list[tuple[int, int]]:
        """Add a request; return its prompt as segments (stream, tokens).

        row : of the request; its own stream holds the tokens that no earlier text has.
        prompt, answer : token ids, int32; the prompt has some.
        """
        edges = self._roots.setdefault(salt, {})
        segments, place = [], 0
        while place < len(prompt) and (edge := edges.get(int(prompt[place]))) is not None:
            length = _common(edge.ids, prompt[place:])
            if length < len(edge.ids):
                edge.cut(length)
            _extend(segments, edge.stream, length)
            edges, place = edge.next, place + length
        if place < len(prompt):
            edge = _Edge(prompt[place:], records.own_stream(row))
            edges[int(prompt[place])] = edge
            _extend(segments, edge.stream, len(prompt) - place)
            edges = edge.next
        if len(answer):         # an earlier text that goes on with the same word keeps the place
            edges.setdefault(int(answer[0]), _Edge(answer, records.output_stream(row)))
        return segments


def _common(first: np.ndarray, second: np.ndarray) -> int:
    """Return the number of leading elements that are equal."""
    length = min(len(first), len(second))
    differs = first[:length] != second[:length]
    place = int(differs.argmax())
    return place if differs[place] else length


def _extend(segments: list[tuple[int, int]], stream: int, tokens: int) -> None:
    """Let a prompt go on with tokens of a stream."""
    if segments and segments[-1][0] == stream:
        tokens += segments.pop()[1]
    segments.append((stream, tokens))


def num_tokens(segments: Sequence[tuple[int, int]]) -> int:
    """Return the length of a prompt."""
    return sum(tokens for _, tokens in segments)
