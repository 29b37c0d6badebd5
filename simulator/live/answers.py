"""The answer to a prompt, known when the request comes: its length, its text, and why it ends."""
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from simulator.live.bodies import Body, Refused
from simulator.live.fleet import LiveFleet, LiveRequest
from simulator.live.prompts import Texts
from simulator.live.words import Words, filler


class Answer(NamedTuple):
    """An answer, token by token.

    pieces : the text of each token. shown : characters of the whole text that the client gets.
    finish_reason, stop_reason : as vLLM's. request : as the fleet takes it. ids : token ids.
    """

    pieces: list[str]
    shown: int
    finish_reason: str
    stop_reason: str | int | None
    request: LiveRequest
    ids: list[int]


class Answers:
    """Makes answers.

    fleet : which limits their lengths. words : tokenizer. natural : lengths at which the model would stop by itself,
    int (n,); each prompt has one. seed : of the experiment.
    """

    def __init__(self, fleet: LiveFleet, words: Words, natural: np.ndarray, seed: int):
        self._fleet, self._words, self._natural, self._seed = fleet, words, np.maximum(natural, 1), seed
        self._texts = Texts()
        self._times: dict[bytes, int] = {}      # how many times each prompt has come

    def check(self, prompt_tokens: int, body: Body, most: int | None) -> int:
        """Return the limit of an answer, in tokens.

        most : tokens, as the client says. Raises Refused: the lengths do not go together.
        """
        if prompt_tokens == 0:
            raise Refused(400, "The prompt is empty: it must have at least one token.", param="prompt")
        room = self._fleet.longest_answer(prompt_tokens)
        if room < 1:
            raise Refused(400, f"This model's maximum context length is {self._fleet.max_model_len} tokens. However, "
                               f"your request has {prompt_tokens} input tokens. Please reduce the length of the input.",
                          param="input_tokens")
        cap = room if most is None else min(most, room)
        if (body.min_tokens or 0) > cap:
            raise Refused(400, f"min_tokens must be less than or equal to max_tokens={cap}, got {body.min_tokens}.",
                          param="min_tokens")
        return cap

    def make(self, prompt: np.ndarray, body: Body, cap: int) -> Answer:
        """Return the answer to a prompt, which is the fleet's next request.

        cap : as `check` returns it.
        """
        drawn = self._draw(prompt)
        length = int(self._natural[drawn % len(self._natural)])
        is_long = bool(body.ignore_eos) or length >= cap
        length = cap if is_long else max(length, body.min_tokens or 0)
        pieces = filler(drawn // len(self._natural), length)
        ids = [int(self._words.encode(piece)[0]) for piece in pieces]
        count, shown, stop = _stopped(pieces, ids, body)
        reason = "length" if is_long and stop is None else "stop"
        segments = self._texts.add(self._fleet.count, prompt, np.array(ids[:count], np.int32), body.cache_salt or "")
        request = LiveRequest(len(prompt), cap, count, segments, body.priority or 0)
        return Answer(pieces[:count], shown, reason, stop, request, ids[:count])

    def _draw(self, prompt: np.ndarray) -> int:
        """Return a number of a prompt, which depends on seed, prompt, and how many times it came before."""
        key = blake2b(prompt.tobytes(), digest_size=16).digest()
        times = self._times[key] = self._times.get(key, -1) + 1
        return int.from_bytes(blake2b(key + f"/{self._seed}/{times}".encode(), digest_size=8).digest(), "big")


def _stopped(pieces: list[str], ids: list[int], body: Body) -> tuple[int, int, str | int | None]:
    """Return the tokens until something stops the answer, the characters that are shown, and what stopped it.

    As in vLLM, neither texts nor ids stop an answer before it has min_tokens.
    """
    stops, stop_ids, text = body.stops, set(body.stop_token_ids or ()), ""
    if not stops and not stop_ids:
        return len(pieces), sum(map(len, pieces)), None
    for count, (piece, token) in enumerate(zip(pieces, ids, strict=True), 1):
        before, text = len(text), text + piece
        if count < (body.min_tokens or 0):
            continue
        if token in stop_ids:
            return count, before, token
        for stop in stops:
            place = text.find(stop, max(before - len(stop) + 1, 0)) if stop else -1
            if place >= 0:
                return count, place + len(stop) * bool(body.include_stop_str_in_output), stop
    return len(pieces), len(text), None
