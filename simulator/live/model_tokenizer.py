"""The tokenizer of a model, read from a tokenizer.json of Hugging Face; it needs the package `tokenizers`.

Texts of answers are decoded token by token, as by the FastIncrementalDetokenizer of vLLM 0.33.0
(v1/engine/detokenizer.py): tokens of a character that is not complete yet have no text, nor have special tokens.
"""
import re
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from simulator.errors import InputErrors, KeyFault
from simulator.live.bodies import Refused
from simulator.live.words import Written

WORD = re.compile(r"[Ġ▁]?([a-z]{1,12})")        # a token that may be a word, with the mark of the blank before it
MOST_WORDS = 1_000
BLANKS = ("Ġ", "▁", " ")         # the token of a blank in vocabularies


class ModelTokenizer:
    """Tokens of texts as a real server has them; methods are those of `words.Words`.

    path : of the file; no other file is read, and no network.

    Raises InputErrors: the file cannot be read, or is no tokenizer, or has no words for texts of answers.
    """

    most_at_once = 10_000       # characters, about 10 ms; longer texts are encoded by a thread

    def __init__(self, path: str):
        self._tokenizer = _read(path)
        self.size = 1 + max(self._tokenizer.get_vocab().values(), default=-1)
        self._words, self._firsts, self._ids = [], [], []
        for word, (first, other) in _words_of(self._tokenizer):
            self._words.append(word)
            self._firsts.append(first)
            self._ids.append(other)
        if not self._words or self._is_joined():
            raise InputErrors([KeyFault(f"serve.tokenizer: {path}: found no words of a to z that are one token each, "
                                        "with a blank before them and without: texts of answers need some")])
        found = [token for name in BLANKS if (token := self._tokenizer.token_to_id(name)) is not None]
        self._blank = Written([" "], found[:1]) if found else None

    def encode(self, text: str, with_special: bool = False) -> np.ndarray:
        """Return the token ids of a text, int32.

        with_special : with the tokens that the tokenizer puts around a text. Raises Refused: the tokenizer cannot.
        """
        return np.array(self._encoded(text, with_special), np.int32)

    def decode(self, ids) -> str:
        """Return a text, with special tokens."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def piece(self, token: int) -> str:
        """Return the text of a token by itself."""
        return self.decode([token])

    def name(self, token: int) -> str:
        """Return a token as the vocabulary has it."""
        return self._tokenizer.id_to_token(token) or ""

    # ---- texts of answers

    def written(self, text: str) -> Written:
        """Return a text, token by token. Raises Refused: the tokenizer cannot."""
        return self.read(self._encoded(text))

    def read(self, ids: list[int]) -> Written:
        """Return the text that each token adds to those before it."""
        stream, pieces = DecodeStream(skip_special_tokens=True), []
        for token in ids:
            try:
                piece = stream.step(self._tokenizer, token)
            except Exception:           # the text before is not the beginning of the text with the token: begin anew
                stream = DecodeStream(skip_special_tokens=True)
                piece = stream.step(self._tokenizer, token)
            pieces.append(piece or "")
        return Written(pieces, ids)

    def filler(self, start: int, count: int) -> Written:
        """Return so many words in order, with a blank between two."""
        places = [(start + i) % len(self._words) for i in range(count)]
        pieces, ids = [f" {self._words[i]}" for i in places], [self._ids[i] for i in places]
        if count:
            pieces[0], ids[0] = self._words[places[0]], self._firsts[places[0]]
        return Written(pieces, ids)

    def echo(self, ids: list[int], length: int) -> Written:
        """Return so many tokens of a text that begins anew after its end."""
        return self.again(self.read(ids[:length]), length)

    def again(self, text: Written, length: int) -> Written:
        """Return so many tokens of a text that begins anew after its end, behind a blank."""
        joined = "".join(text.pieces)
        again = text.ids if joined[:1].isspace() else self._encoded(f" {joined}") or text.ids
        return self.read((text.ids + again * -(-(length - len(text.ids)) // len(again)))[:length])

    def padded(self, text: Written, length: int) -> Written:
        """Return the first tokens of a text, or the text and blanks.

        Raises Refused: the tokenizer has no token for a blank.
        """
        missing = max(length - len(text.ids), 0)
        if missing and self._blank is None:
            raise Refused(501, "min_tokens: the tokenizer has no token for a blank after a text of a demanded form",
                          "NotImplementedError", "min_tokens")
        pieces, ids = self._blank or ([], [])
        return Written((text.pieces + pieces * missing)[:length], (text.ids + ids * missing)[:length])

    def other(self, number: int) -> tuple[str, int]:
        """Return one of the words, behind a blank, and its id."""
        place = number % len(self._words)
        return f" {self._words[place]}", self._ids[place]

    # ---- private

    def _encoded(self, text: str, with_special: bool = False) -> list[int]:
        try:
            return self._tokenizer.encode(text, add_special_tokens=with_special).ids
        except Exception as error:      # the package raises no narrower class
            raise Refused(400, f"The text cannot be tokenized: {error}", param="prompt") from None

    def _is_joined(self) -> bool:
        """Return whether some word has other tokens, or another text, between the words beside it."""
        text, ids = self.filler(0, len(self._words) + 1)
        joined = "".join(text)
        return self._encoded(joined) != ids or "".join(self.read(ids).pieces) != joined


def _read(path: str) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_buffer(Path(path).read_bytes())
    except OSError as error:
        raise InputErrors([KeyFault(f"serve.tokenizer: {path} cannot be read: {error.strerror}")]) from None
    except Exception as error:          # the package raises no narrower class
        raise InputErrors([KeyFault(f"serve.tokenizer: {path}: expected a tokenizer.json of Hugging Face: "
                                    f"{error}")]) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _words_of(tokenizer: Tokenizer) -> list[tuple[str, list[int]]]:
    """Return words that are one token at the beginning of a text, and one behind a blank, with both ids."""
    vocabulary, found = tokenizer.get_vocab(with_added_tokens=False), []
    names = sorted(vocabulary, key=vocabulary.get)
    for word in dict.fromkeys(match[1] for name in names if (match := WORD.fullmatch(name))):
        text = f"{word} {word}"
        try:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
        except Exception:               # no token for a letter
            continue
        if len(ids) == 2 and tokenizer.decode(ids) == text:
            found.append((word, ids))
            if len(found) == MOST_WORDS:
                break
    return found
