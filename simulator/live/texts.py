"""Texts and natural lengths of answers: filler words, the prompt again, or lines of a data set."""
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from simulator import registry
from simulator.domain.serving import Serve
from simulator.errors import InputErrors
from simulator.live.bodies import Refused
from simulator.live.words import Words, Written


class Prompt(NamedTuple):
    """A prompt.

    ids : its tokens. echoed : tokens that an echo repeats, at least one. text : that a data set has an answer to.
    """

    ids: np.ndarray
    echoed: np.ndarray
    text: str


class Line(msgspec.Struct):
    """A line of a data set."""

    text: str
    prompt_sha256: str | None = None


class Writer:
    """Writes answers; each is a function of its prompt and of the number drawn for it.

    serve : the table. natural : lengths of the experiment's [workload], int (n,).

    Raises InputErrors: the data set cannot be read.
    """

    def __init__(self, serve: Serve, words: Words, natural: np.ndarray):
        self._serve, self._words, self._lengths = serve, words, np.maximum(natural, 1)
        self._lines, self._known = [], {}
        if serve.dataset is not None:
            self._read(serve.dataset)
        chosen, self._distribution = serve.output_tokens, None
        if not isinstance(chosen, str):
            self._distribution = registry.load("length_distribution", chosen.distribution)(chosen.parameters)
        self._write: Callable = {"filler": self._filler, "echo": self._echo, "dataset": self._dataset}[serve.text]

    def length(self, prompt: Prompt, drawn: int) -> int | None:
        """Return the tokens after which an answer ends by itself; None: it does not."""
        chosen = self._serve.output_tokens
        if chosen == "max_tokens":
            return None
        if chosen == "dataset":
            return len(self._line(prompt, drawn).ids)
        if self._distribution is None:
            return int(self._lengths[drawn % len(self._lengths)])
        return max(int(self._distribution.draw(np.random.default_rng(drawn), 1)[0]), 1)

    def text(self, prompt: Prompt, drawn: int, length: int) -> Written:
        """Return a text of so many tokens."""
        return self._write(prompt, drawn, length)

    def _filler(self, prompt: Prompt, drawn: int, length: int) -> Written:
        return self._words.filler(drawn // len(self._lengths), length)

    def _echo(self, prompt: Prompt, drawn: int, length: int) -> Written:
        return self._words.echo(prompt.echoed.tolist(), length)

    def _dataset(self, prompt: Prompt, drawn: int, length: int) -> Written:
        return self._words.again(self._line(prompt, drawn), length)

    def _line(self, prompt: Prompt, drawn: int) -> Written:
        place = self._known.get(sha256(prompt.text.encode(errors="surrogatepass")).hexdigest())
        return self._lines[drawn % len(self._lines) if place is None else place]

    def _read(self, path: str) -> None:
        faults, decode = [], msgspec.json.Decoder(Line).decode
        try:
            lines = Path(path).read_bytes().splitlines()
        except OSError as error:
            raise InputErrors([f"serve.dataset: {path} cannot be read: {error.strerror}"]) from None
        for number, data in enumerate(lines, 1):
            try:
                line = decode(data) if data.strip() else None
                text = None if line is None else self._words.written(line.text)
            except (msgspec.DecodeError, UnicodeDecodeError, Refused) as error:
                faults.append(f'{path}:{number}: expected {{"text": ...}}: {error}')
                continue
            if text is not None and not text.ids:
                faults.append(f"{path}:{number}: text: expected at least one token")
            elif text is not None:
                if line.prompt_sha256 is not None:
                    self._known[line.prompt_sha256.lower()] = len(self._lines)
                self._lines.append(text)
        if not faults and not self._lines:
            faults.append(f"serve.dataset: {path} has no line")
        if faults:
            raise InputErrors(faults)
