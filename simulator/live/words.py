"""Tokens of a text: words, single other characters and white space; and words as the text of answers."""
import math
import re
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

PIECES = re.compile(r" ?[^\W_]+|\s+|[^\w\s]|_")
FIRST_ID = 256                  # lower ids are left to special tokens
SYLLABLES = ("ba", "de", "fi", "go", "lu", "ma", "ne", "pi", "ro", "su")
NUM_WORDS = len(SYLLABLES)**3


class Written(NamedTuple):
    """A text of an answer, token by token.

    pieces : the text of each token. ids : of the tokens.
    """

    pieces: list[str]
    ids: list[int]


class Words:
    """The tokenizer `words`; `model_tokenizer.ModelTokenizer` has the same methods.

    A piece of text is a token: a run of letters or digits with the one blank before it, another single character, or a
    run of white space. Its id is a hash, so that it does not depend on texts seen before.

    vocabulary : number of ids, above `FIRST_ID`.
    """

    most_at_once = math.inf     # characters that are encoded while no one else is served

    def __init__(self, vocabulary: int):
        self._span = vocabulary - FIRST_ID
        self._ids: dict[str, int] = {}
        self._pieces: dict[int, str] = {}

    def encode(self, text: str, with_special: bool = False) -> np.ndarray:
        """Return the token ids of a text, int32.

        with_special : with the tokens that a model has around a text; here there are none.
        """
        return np.array(self.written(text).ids, np.int32)

    def decode(self, ids) -> str:
        """Return a text; an id that no text has had yet is written as " t" and the number."""
        return "".join(map(self.piece, ids))

    def piece(self, token: int) -> str:
        """Return the text of a token."""
        return self._pieces.get(token) or f" t{token}"

    name = piece                # of a token in its vocabulary

    # ---- texts of answers

    def written(self, text: str) -> Written:
        """Return a text, token by token."""
        return self._of(PIECES.findall(text))

    def read(self, ids: list[int]) -> Written:
        """Return the text of each token."""
        return Written(list(map(self.piece, ids)), ids)

    def filler(self, start: int, count: int) -> Written:
        """Return so many words in order, with a blank between two."""
        return self._of([word(start + i) if i == 0 else f" {word(start + i)}" for i in range(count)])

    def echo(self, ids: list[int], length: int) -> Written:
        """Return so many tokens of a text that begins anew after its end."""
        return self.again(self._of([self.piece(token) for token in ids[:length]]), length)

    def again(self, text: Written, length: int) -> Written:
        """Return so many tokens of a text that begins anew after its end, behind a blank."""
        pieces = text.pieces
        again = [pieces[0] if pieces[0][:1].isspace() else f" {pieces[0]}", *pieces[1:]]
        return self._of((pieces + again * (-(-length // len(pieces)) - 1))[:length])

    def padded(self, text: Written, length: int) -> Written:
        """Return the first tokens of a text, or the text and blanks."""
        return self._of((text.pieces + [" "] * (length - len(text.pieces)))[:length])

    def other(self, number: int) -> tuple[str, int]:
        """Return one of the words, behind a blank, and its id."""
        piece = f" {word(number)}"
        return piece, self._id(piece)

    def _of(self, pieces: list[str]) -> Written:
        return Written(pieces, [self._id(piece) for piece in pieces])

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
