"""One HTTP request and its answers: engine requests in, the events of a stream or one JSON body out."""
import asyncio
import time
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from simulator.domain import records
from simulator.live.answers import Answer
from simulator.live.bodies import Body, Refused

encode = msgspec.json.encode
CHAT, TEXT = "chat", "text"     # the two interfaces
DONE = b"data: [DONE]\n\n"
BACK_OFF = ("admission", "queue_full", "shed", "expired", "recalled")       # causes at the gateway, answered by 429


class Head(NamedTuple):
    """What all parts of an answer begin with.

    kind : CHAT or TEXT. id : of the answer. model : its name.
    """

    kind: str
    id: str
    model: str

    def part(self, is_chunk: bool) -> dict:
        """Return the first fields of a body or an event."""
        names = {TEXT: "text_completion", CHAT: "chat.completion.chunk" if is_chunk else "chat.completion"}
        return {"id": self.id, "object": names[self.kind], "created": int(time.time()), "model": self.model}


class Choice:
    """One of the answers of an exchange.

    sent : characters that the client has. made : tokens that are due. is_over : it has ended. failed : with this status
    instead of its last token, records.REJECTED, ...; None: it has not. cause : of records.CAUSE_NAMES.
    """

    def __init__(self, index: int, answer: Answer, prompt_tokens: int):
        self.index, self.answer, self.prompt_tokens = index, answer, prompt_tokens
        self.row = -1
        self.cached_tokens = 0
        self.made = self.written = self.sent = 0
        self.is_over = self.is_written = False
        self.failed: int | None = None
        self.cause = ""
        self._text = ""

    def take(self, tokens: int) -> None:
        """Take tokens that are due."""
        self._text += "".join(self.answer.pieces[self.made:self.made + tokens])
        self.made += tokens

    def new_text(self) -> str:
        """Return the text that the client does not have yet, without a begun stop text."""
        end = self.answer.shown if self.is_over else min(len(self._text), self.answer.shown)
        text, self.sent = self._text[self.sent:end], max(end, self.sent)
        return text

    def new_ids(self) -> list[int]:
        """Return the ids of the tokens that the client does not have yet."""
        ids, self.written = self.answer.ids[self.written:self.made], self.made
        return ids


class Exchange:
    """The answers to one HTTP request, as far as they are due.

    body : of the request. choices : in order of their index.
    """

    def __init__(self, head: Head, body: Body, choices: list[Choice]):
        self.head, self.body, self.choices = head, body, choices
        self.has_news = asyncio.Event()
        self.due_ns: int | None = None          # time of the wall of the oldest news that are not written
        self._has_begun = set()

    def listener(self, choice: Choice, cached_tokens):
        """Return the function that takes news of a choice.

        cached_tokens : returns the hits of its prompt.
        """
        def take(message, due_ns):
            if message.tokens:
                if choice.made == 0:
                    choice.cached_tokens = cached_tokens(message.row)
                choice.take(message.tokens)
            else:
                choice.is_over, choice.cause = True, message.cause
                choice.failed = message.status if choice.made < len(choice.answer.pieces) else None
            if self.due_ns is None:
                self.due_ns = due_ns
            self.has_news.set()
        return take

    @property
    def is_over(self) -> bool:
        """Whether all answers are complete, or failed."""
        return all(choice.is_over for choice in self.choices)

    def failure(self) -> Refused | None:
        """Return the error of an answer that ended early; None: there is none."""
        failed = [choice for choice in self.choices if choice.failed is not None]
        if not failed:
            return None
        causes = [choice.cause for choice in failed if choice.failed in (records.REJECTED, records.DROPPED)]
        if back_off := next((cause for cause in causes if cause in BACK_OFF), None):
            return Refused(429, "The gateway has as many requests as it admits.", "Too Many Requests",
                           headers={"x-llm-d-request-dropped-reason": back_off, "Retry-After": "1"})
        if "no_replica" in causes:
            return Refused(503, "No replica is there to serve the request.", "Service Unavailable")
        if any(choice.failed == records.REJECTED for choice in failed):     # by the limits of the replica's API server
            return Refused(503, "The server has as many requests in its queue as its limits allow.",
                           "Service Unavailable")
        return Refused(500, "EngineCore encountered an issue.", "InternalServerError")

    def usage(self) -> dict:
        """Return the tokens of prompts and answers so far."""
        prompts = {choice.index // (self.body.n or 1): choice.prompt_tokens for choice in self.choices}
        return _usage(sum(prompts.values()), sum(choice.made for choice in self.choices),
                      max(choice.cached_tokens for choice in self.choices))

    # ---- streams

    def events(self) -> Iterator[bytes]:
        """Yield the events that are due."""
        interval, options = self.body.stream_interval or 1, self.body.stream_options
        for choice in self.choices:
            if not choice.is_written and (choice.is_over or choice.made - choice.written >= interval):
                if self.head.kind == CHAT and choice.index not in self._has_begun:
                    self._has_begun.add(choice.index)
                    yield self._event(choice, {"role": "assistant", "content": ""}, [], False)
                choice.is_written = choice.is_over
                ids, text = choice.new_ids(), choice.new_text()
                yield self._event(choice, {"content": text} if self.head.kind == CHAT else text, ids, choice.is_over)
        if self.is_over and options is not None and options.include_usage:
            yield b"data: %b\n\n" % encode(self.head.part(True) | {"choices": [], "usage": self.usage()})

    def _event(self, choice: Choice, content, ids: list[int], is_last: bool) -> bytes:
        part = self.head.part(True)
        found = {"index": choice.index, "delta" if self.head.kind == CHAT else "text": content, "logprobs": None,
                 "finish_reason": choice.answer.finish_reason if is_last else None,
                 "stop_reason": choice.answer.stop_reason if is_last else None}
        if self.body.return_token_ids:
            found["token_ids"] = ids
        part["choices"] = [found]
        options = self.body.stream_options
        if options is not None and options.include_usage and options.continuous_usage_stats:
            part["usage"] = _usage(choice.prompt_tokens, choice.made, choice.cached_tokens)
        return b"data: %b\n\n" % encode(part)

    # ---- whole answers

    def whole(self) -> bytes:
        """Return the body of an answer that is no stream."""
        return encode(self.head.part(False) | {"choices": [self._choice(choice) for choice in self.choices],
                                               "usage": self.usage()})

    def _choice(self, choice: Choice) -> dict:
        text, ids = choice.new_text(), choice.new_ids()
        content = ({"message": {"role": "assistant", "content": text, "tool_calls": []}}
                   if self.head.kind == CHAT else {"text": text})
        found = {"index": choice.index, **content, "logprobs": None, "finish_reason": choice.answer.finish_reason,
                 "stop_reason": choice.answer.stop_reason}
        return found | {"token_ids": ids} if self.body.return_token_ids else found


def _usage(prompt: int, completion: int, cached: int) -> dict:
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": cached}}
