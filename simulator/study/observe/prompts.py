"""Prompts as token ids or words: requests that share a token stream in the workload share it on the wire.

A token is known by its stream and its position in it. Its id or word is drawn from these two and the seed, so that
equal beginnings of streams are equal texts, and others differ. Where a prompt holds the answer to an earlier request,
it is the server's own answer, where that is known.
"""
from typing import NamedTuple

import numpy as np

from simulator.domain import records
from simulator.workload.base import Workload
from simulator.workload.own_draws import uniforms

# Of the vocabularies in models/ the smallest has 32,000 (Llama 2); its first ids are control tokens and single bytes
# in that vocabulary.
FIRST_ID, NUM_IDS = 1_000, 31_000

# Short English words, most of which are one token in current tokenizers; a probe measures how many tokens they
# are.
_TEXT = """
the of and to in is that it was for on are with as his they at be this from have or by one had not but what all were
when we there can an your which their said if do will each about how up out them then she many some so these would
other into has more her two like him see time could no make than first been its who now people my made over did down
only way find use may water long little very after words called just where most know
"""
WORDS = tuple(_TEXT.split())


class Piece(NamedTuple):
    """A part of a prompt.

    answer_to : row of the request with this answer; -1: the piece is drawn.
    """

    stream: int
    num_tokens: int
    answer_to: int


class Pace(NamedTuple):
    """The number of tokens that a server makes of words.

    Each word has `tokens_per_word`; `fixed_tokens` is the chat template's part.
    """

    tokens_per_word: float
    fixed_tokens: float


class Prompts:
    """The prompts of a workload.

    ids : from which token ids are taken.
    salt : another one gives texts that share nothing with these.
    """

    def __init__(self, workload: Workload, seed: int, ids: range, salt: str = ""):
        self._segments, self._demands = workload.segments, workload.demands
        self._lengths = workload.requests["prompt_tokens"]
        self._seed, self._ids, self._salt = seed, ids, salt
        streams = self._segments["stream"]
        self.repeated = set((streams[streams & 3 == records.output_stream(0)] >> 2).tolist())
        """Rows of requests with answers that are repeated in prompts."""

    def pieces(self, row: int) -> list[Piece]:
        """Return the parts of the prompt of a request."""
        begin, count = (int(self._demands[name][row]) for name in ("segments_begin", "num_segments"))
        if not count:
            return [Piece(records.own_stream(row), int(self._lengths[row]), -1)]
        return [Piece(stream, num_tokens, stream >> 2 if stream & 3 == records.output_stream(0) else -1)
                for stream, num_tokens in self._segments[begin:begin + count].tolist()]

    def token_ids(self, row: int, answers: dict[int, list[int]]) -> list[int]:
        """Return a prompt as token ids, in the length that the workload has.

        answers : token ids of answers, by row. Missing ids are drawn.
        """
        found = []
        for piece in self.pieces(row):
            known = answers.get(piece.answer_to, [])[:piece.num_tokens]
            found += known
            if len(known) < piece.num_tokens:
                found += self._drawn(piece.stream, piece.num_tokens, self._ids)[len(known):]
        return found

    def messages(self, row: int, answers: dict[int, str], pace: Pace) -> list[dict[str, str]]:
        """Return a prompt as a conversation.

        Answers are the assistant's, all else is the user's.
        """
        turns, fixed = [], pace.fixed_tokens
        for piece in self.pieces(row):
            role = "user" if piece.answer_to < 0 else "assistant"
            text = answers.get(piece.answer_to)
            if text is None:
                num_tokens = max(piece.num_tokens - fixed, 0.0)
                num_words = max(round(num_tokens / pace.tokens_per_word), 1)
                fixed = max(fixed - piece.num_tokens, 0.0)
                text = self.words(piece.stream, num_words)
            if turns and turns[-1]["role"] == role:
                turns[-1]["content"] += " " + text
            else:
                turns.append({"role": role, "content": text})
        if turns[-1]["role"] == "assistant":        # chat needs a user's turn at the end
            turns.append({"role": "user", "content": self.words(records.own_stream(row), 1)})
        return turns

    def words(self, stream: int, count: int) -> str:
        """Return the first words of a stream."""
        return " ".join(WORDS[place] for place in self._drawn(stream, count, range(len(WORDS))))

    def _drawn(self, stream: int, count: int, places: range) -> list[int]:
        numbers = uniforms(self._seed, f"observe{self._salt}/{stream}", np.arange(count, dtype=np.uint64))
        return (places.start + (numbers * len(places)).astype(np.int64)).tolist()
