"""The answer to a prompt, known when the request comes: its length, its text, and why it ends."""
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from simulator.live.bodies import Body, Refused
from simulator.live.demands import Demand
from simulator.live.fleet import LiveFleet, LiveRequest
from simulator.live.prompts import Texts
from simulator.live.texts import Prompt, Writer
from simulator.live.words import Words, Written


class Answer(NamedTuple):
    """An answer, token by token.

    pieces : the text of each token. shown : characters of the whole text that the client gets.
    finish_reason, stop_reason : as vLLM's. request : as the fleet takes it. ids : token ids. tool : name of the
    function that the text is the arguments of; None: of none.
    """

    pieces: list[str]
    shown: int
    finish_reason: str
    stop_reason: str | int | None
    request: LiveRequest
    ids: list[int]
    tool: str | None = None

    def of(self, text: Written) -> "Answer":
        """Return the answer that shows a text in its place."""
        return self._replace(pieces=text.pieces, shown=sum(map(len, text.pieces)), ids=text.ids)

    def behind(self, text: Written) -> "Answer":
        """Return the answer behind its prompt."""
        return self._replace(pieces=text.pieces + self.pieces, shown=sum(map(len, text.pieces)) + self.shown,
                             ids=text.ids + self.ids)


class Answers:
    """Makes answers.

    fleet : which limits their lengths. words : tokenizer. writer : of texts, and of the lengths at which the model
    would stop by itself. seed : of the experiment.
    """

    def __init__(self, fleet: LiveFleet, words: Words, writer: Writer, seed: int):
        self._fleet, self._words, self._writer, self.seed = fleet, words, writer, seed
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

    def make(self, prompt: Prompt, body: Body, cap: int, demand: Demand | None = None) -> Answer:
        """Return the answer to a prompt, which is the fleet's next request.

        cap : as `check` returns it. demand : on the form of the answer.
        """
        drawn, tool = self._draw(prompt.ids), None
        if demand is None:
            length = self._writer.length(prompt, drawn)
            is_long, length = self._fitted(length, cap, body)
            pieces, ids = self._writer.text(prompt, drawn, length)
        else:
            text, tool = self._words.written(demand.text), demand.tool
            is_long, length = self._fitted(max(len(text.ids), 1), cap, body)
            pieces, ids = self._words.padded(text, length)
        count, shown, stop = _stopped(pieces, ids, body)
        reason = "length" if is_long and stop is None else "stop" if tool is None else "tool_calls"
        row, salt = self._fleet.count, body.cache_salt or ""
        if body.prompt_logprobs is not None:    # the whole prompt is computed
            salt = f"{salt}\0{row}"
        segments = self._texts.add(row, prompt.ids, np.array(ids[:count], np.int32), salt)
        request = LiveRequest(len(prompt.ids), cap, count, segments, body.priority or 0)
        if self._fleet.events is not None:
            request = request._replace(ids=np.concatenate([prompt.ids, ids[:count]]).astype(np.int32), salt=salt)
        return Answer(pieces[:count], shown, reason, stop, request, ids[:count], tool)

    @staticmethod
    def _fitted(natural: int | None, cap: int, body: Body) -> tuple[bool, int]:
        """Return whether the limit ends an answer, and its length."""
        if body.ignore_eos or natural is None or natural >= cap:
            return True, cap
        return False, max(natural, body.min_tokens or 0)

    def _draw(self, prompt: np.ndarray) -> int:
        """Return a number of a prompt, which depends on seed, prompt, and how many times it came before."""
        key = blake2b(prompt.tobytes(), digest_size=16).digest()
        times = self._times[key] = self._times.get(key, -1) + 1
        return int.from_bytes(blake2b(key + f"/{self.seed}/{times}".encode(), digest_size=8).digest(), "big")


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
