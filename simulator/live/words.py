"""Tokens of a text: words, single other characters and white space; and words as the text of answers."""
import re
from hashlib import blake2b

import numpy as np

PIECES = re.compile(r" ?[^\W_]+|\s+|[^\w\s]|_")
FIRST_ID = 256                  # lower ids are left to special tokens
SYLLABLES = ("ba", "de", "fi", "go", "lu", "ma", "ne", "pi", "ro", "su")
NUM_WORDS = len(SYLLABLES)**3


class Words:
    """The tokenizer `words`.

    A piece of text is a token: a run of letters or digits with the one blank before it, another single character, or a
    run of white space. Its id is a hash, so that it does not depend on texts seen before.

    vocabulary : number of ids, above `FIRST_ID`.
    """

    def __init__(self, vocabulary: int):
        self._span = vocabulary - FIRST_ID
        self._ids: dict[str, int] = {}
        self._pieces: dict[int, str] = {}

    @staticmethod
    def split(text: str) -> list[str]:
        """Return the pieces of a text, a token each."""
        return PIECES.findall(text)

    def encode(self, text: str) -> np.ndarray:
        """Return the token ids of a text, int32."""
        return self.ids(self.split(text))

    def ids(self, pieces: list[str]) -> np.ndarray:
        """Return the token ids of pieces, int32."""
        return np.array([self._id(piece) for piece in pieces], np.int32)

    def decode(self, ids) -> str:
        """Return a text; an id that no text has had yet is written as " t" and the number."""
        return "".join(self.piece(token) for token in ids)

    def piece(self, token: int) -> str:
        """Return the text of a token."""
        return self._pieces.get(token) or f" t{token}"

    def _id(self, piece: str) -> int:
        found = self._ids.get(piece)
        if found is None:
            digest = blake2b(piece.encode(errors="surrogatepass"), digest_size=8).digest()
            found = self._ids[piece] = FIRST_ID + int.from_bytes(digest, "big") % self._span
            self._pieces.setdefault(found, piece)
        return found


def word(number: int) -> str:
    """Return one of `NUM_WORDS` words, which are one token each."""
    number %= NUM_WORDS
    return SYLLABLES[number // 100] + SYLLABLES[number // 10 % 10] + SYLLABLES[number % 10]


def filler(start: int, count: int) -> list[str]:
    """Return the pieces of an answer: words in order, with a blank between two."""
    return [word(start + i) if i == 0 else f" {word(start + i)}" for i in range(count)]
