"""One HTTP request and its answers: engine requests in, the events of a stream or one JSON body out."""
import asyncio
import time
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from simulator.domain import records
from simulator.live import logprobs
from simulator.live.answers import Answer
from simulator.live.bodies import Body, Refused
from simulator.live.words import Words

encode = msgspec.json.encode
CHAT, TEXT, GENERATE = "chat", "text", "generate"       # the interfaces, the last SGLang's own
PREFIXES = {CHAT: "chatcmpl-", TEXT: "cmpl-", GENERATE: ""}      # of the ids of answers
ABORT = "abort"                 # the reason that an answer ends which an admin or the client has aborted
DONE = b"data: [DONE]\n\n"
BACK_OFF = ("admission", "queue_full", "shed", "expired", "recalled")       # causes at the gateway, answered by 429


class Head(NamedTuple):
    """What all parts of an answer begin with.

    kind : CHAT, TEXT or GENERATE. id : of the answer. model : its name.
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

    lead : tokens of the prompt that the answer begins with, where the client asked for it. sent : characters that the
    client has. made : tokens that are due. is_over : it has ended. failed : with this status
    instead of its last token, records.REJECTED, ...; None: it has not. cause : of records.CAUSE_NAMES.
    prompt_logprobs : of its prompt, if asked for.
    """

    def __init__(self, index: int, answer: Answer, prompt_tokens: int,
                 prompt_logprobs: list[dict | None] | None = None, lead: int = 0):
        self.index, self.answer, self.prompt_tokens = index, answer, prompt_tokens
        self.prompt_logprobs, self.lead = prompt_logprobs, lead
        self.row = -1
        self.cached_tokens = 0
        self.made = self.written = self.sent = 0
        self.is_over = self.is_written = False
        self.failed: int | None = None
        self.cause = ""
        self._text, self._due = "".join(answer.pieces), 0       # the whole text, and its characters that are due

    def take(self, tokens: int) -> None:
        """Take tokens that are due; the prompt is, with the first."""
        tokens += self.lead * (self.made == 0)
        self._due += sum(map(len, self.answer.pieces[self.made:self.made + tokens]))
        self.made += tokens

    def abort(self) -> None:
        """End the answer with the tokens that are due."""
        self.is_over = True
        self.answer = self.answer._replace(finish_reason=ABORT, stop_reason=None,
                                           shown=min(self._due, self.answer.shown))

    @property
    def generated(self) -> int:
        """Tokens that are due, without those of the prompt."""
        return max(self.made - self.lead, 0)

    def new_text(self) -> str:
        """Return the text that the client does not have yet, without a begun stop text."""
        end = self.answer.shown if self.is_over else min(self._due, self.answer.shown)
        text, self.sent = self._text[self.sent:end], max(end, self.sent)
        return text

    def new_tokens(self) -> slice:
        """Return the place of the tokens that the client does not have yet."""
        found, self.written = slice(self.written, self.made), self.made
        return found


class Exchange:
    """The answers to one HTTP request, as far as they are due.

    body : of the request. words : tokenizer. choices : in order of their index. interval : fewest tokens of an event.
    """

    def __init__(self, head: Head, body: Body, words: Words, choices: list[Choice], interval: int = 1):
        self.head, self.body, self.words, self.choices = head, body, words, choices
        self.interval = body.stream_interval or interval
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
        return _usage(sum(prompts.values()), sum(choice.generated for choice in self.choices),
                      max(choice.cached_tokens for choice in self.choices))

    # ---- streams

    def events(self) -> Iterator[bytes]:
        """Yield the events that are due."""
        options = self.body.stream_options
        for choice in self.choices:
            if not choice.is_written and (choice.is_over or choice.made - choice.written >= self.interval):
                if self.head.kind == CHAT and choice.index not in self._has_begun:
                    self._has_begun.add(choice.index)
                    yield self._event(choice, {"role": "assistant", "content": ""}, slice(0), False)
                    if choice.answer.tool is not None:
                        yield self._event(choice, self._called(choice, "", True), slice(0), False)
                choice.is_written = choice.is_over
                tokens, text = choice.new_tokens(), choice.new_text()
                yield self._event(choice, self._content(choice, text), tokens, choice.is_over)
        if self.is_over and options is not None and options.include_usage:
            yield b"data: %b\n\n" % encode(self.head.part(True) | {"choices": [], "usage": self.usage()})

    def _content(self, choice: Choice, text: str) -> dict | str:
        if self.head.kind == TEXT:
            return text
        return {"content": text} if choice.answer.tool is None else self._called(choice, text, False)

    def _called(self, choice: Choice, text: str, is_first: bool) -> dict:
        """Return a part of the call of a tool."""
        function, call = {"arguments": text}, {"index": 0}
        if is_first:
            function = {"name": choice.answer.tool} | function
            call |= {"id": self._call_id(choice), "type": "function"}
        return {"tool_calls": [call | {"function": function}]}

    def _call_id(self, choice: Choice) -> str:
        return f"call-{self.head.id}-{choice.index}"

    def _event(self, choice: Choice, content: dict | str, tokens: slice, is_last: bool) -> bytes:
        part = self.head.part(True)
        part["choices"] = [self._found(choice, "delta" if self.head.kind == CHAT else "text", content, tokens, is_last)]
        options = self.body.stream_options
        if options is not None and options.include_usage and options.continuous_usage_stats:
            part["usage"] = _usage(choice.prompt_tokens, choice.generated, choice.cached_tokens)
        return b"data: %b\n\n" % encode(part)

    def _found(self, choice: Choice, name: str, content: dict | str, tokens: slice, is_last: bool) -> dict:
        """Return a choice, or its news."""
        answer = choice.answer
        found = {"index": choice.index, name: content, "logprobs": self._logprobs(choice, tokens),
                 "finish_reason": answer.finish_reason if is_last else None,
                 "stop_reason": answer.stop_reason if is_last else None}
        return found | {"token_ids": answer.ids[tokens]} if self.body.return_token_ids else found

    def _logprobs(self, choice: Choice, tokens: slice) -> dict | None:
        answer = choice.answer
        most, pieces = self.body.num_logprobs, answer.pieces[tokens]
        if most is None or not pieces:
            return None
        names = ([f"token_id:{token}" for token in answer.ids[tokens]] if self.body.return_tokens_as_token_ids
                 else pieces)
        if self.head.kind == CHAT:
            return logprobs.of_chat(pieces, names, self.words, most)
        begin = sum(map(len, answer.pieces[:tokens.start]))
        found = logprobs.of_completion(pieces, names, self.words, most, begin)
        if choice.lead and tokens.start == 0:           # nothing comes before the first token of a prompt
            found["token_logprobs"][0] = found["top_logprobs"][0] = None
        return found

    # ---- whole answers

    def whole(self) -> bytes:
        """Return the body of an answer that is no stream."""
        made = self.head.part(False) | {"choices": [self._choice(choice) for choice in self.choices],
                                        "usage": self.usage()}
        if self.head.kind == CHAT:
            made["prompt_logprobs"] = self.choices[0].prompt_logprobs
        return encode(made)

    def _choice(self, choice: Choice) -> dict:
        text, tokens = choice.new_text(), choice.new_tokens()
        if self.head.kind == TEXT:
            found = self._found(choice, "text", text, tokens, True)
            return found | {"prompt_logprobs": choice.prompt_logprobs}
        message = {"role": "assistant", "content": text, "tool_calls": []}
        if choice.answer.tool is not None:
            message |= {"content": None, "tool_calls": [{
                "id": self._call_id(choice), "type": "function",
                "function": {"name": choice.answer.tool, "arguments": text}}]}
        return self._found(choice, "message", message, tokens, True)


def _usage(prompt: int, completion: int, cached: int) -> dict:
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": cached}}
