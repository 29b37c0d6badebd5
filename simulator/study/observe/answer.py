"""What a client saw of one request, as it came."""
from array import array

from simulator.study.observe.messages import Message, NoMessage, Usage, message_of
from simulator.study.observe.sse import Event

OK = "ok"
DONE = b"[DONE]"


class Answer:
    """Filled while the answer comes.

    Times are ns of the Clock; None: that did not happen.

    sent_ns : just before the request was written to its connection, which stands by then.
    headers_ns, first_message_ns, first_token_ns, last_token_ns : what came when. A first message may hold no token, as
        that of chat, which says whose turn it is.
    end_ns : all is over.
    status : OK, or the kind of failure; None: it is under way. error : its text.
    times_ns, tokens, batched : of each message with tokens: when it was read; how many tokens it holds, by the usage
    that
        the server tells with it, else 1; 1 where it came in one read with the one before.
    usage : the last that the server told.
    text, token_ids : of the answer, where `keeps` asks for them.

    Parameters
    ----------
    keeps : a later prompt needs the answer.
    """

    __slots__ = ("_counted", "_keeps", "_told_ids", "batched", "end_ns", "error", "finish_reason", "first_message_ns",
                 "headers_ns", "is_done", "sent_ns", "status", "text", "times_ns", "token_ids", "tokens", "usage")

    def __init__(self, keeps: bool = False):
        self.sent_ns: int | None = None
        self.headers_ns: int | None = None
        self.first_message_ns: int | None = None
        self.end_ns: int | None = None
        self.status: str | None = None
        self.error = ""
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.times_ns, self.tokens, self.batched = array("q"), array("i"), array("b")
        self.text, self.token_ids = [], []
        self.is_done = False
        self._keeps = keeps
        self._counted = self._told_ids = 0

    @property
    def first_token_ns(self) -> int | None:
        """When the first token came."""
        return self.times_ns[0] if self.times_ns else None

    @property
    def last_token_ns(self) -> int | None:
        """When the last token came, or, where nothing streamed, the whole answer."""
        if self.times_ns:
            return self.times_ns[-1]
        return self.end_ns if self.status == OK else None

    @property
    def input_tokens(self) -> int | None:
        """Tokens of the prompt, as the server counts them."""
        return self.usage and self.usage.prompt_tokens

    @property
    def output_tokens(self) -> int | None:
        """Tokens of the answer, as the server counts or names them; None: neither."""
        told = self.usage and self.usage.completion_tokens
        return self._told_ids or None if told is None else told

    @property
    def cached_tokens(self) -> int | None:
        """Tokens of the prompt that the server found in its cache."""
        details = self.usage and self.usage.prompt_tokens_details
        return details and details.cached_tokens

    def fail(self, status: str, error: str) -> None:
        """Note how it failed; the first failure stays."""
        if self.status is None:
            self.status, self.error = status, " ".join(error.split())

    def take(self, events: list[Event], now_ns: int) -> bool:
        """Take the events of one read; return whether there is more to come."""
        is_first = True
        for event in events:
            if event.data == DONE:
                self.is_done = True
                return False
            try:
                message = message_of(event.data)
            except NoMessage as error:
                self.fail("malformed", str(error))
                return False
            if message.error is not None or event.name == "error":
                self.fail("error_event", message.error or event.data.decode("utf-8", "replace"))
                return False
            is_first = not self._add(message, now_ns, is_first) and is_first
        return True

    def take_whole(self, data: bytes) -> None:
        """Take an answer that does not stream."""
        try:
            message = message_of(data)
        except NoMessage as error:
            self.fail("malformed", str(error))
            return
        if message.error is not None or not message.has_choices:
            self.fail("error_event" if message.error else "malformed", message.error or "the answer has no choices")
            return
        self.usage, self.finish_reason, self.is_done = message.usage, message.finish_reason, True
        self._keep(message)

    def close(self) -> None:
        """Note that no more comes: it is well if the answer said that it ends."""
        if self.is_done or self.finish_reason is not None:
            self.status = self.status or OK
        self.fail("broken", "the stream ended before the answer did")

    def _add(self, message: Message, now_ns: int, is_first: bool) -> bool:
        """Note a message; return whether it holds tokens."""
        if message.has_choices and self.first_message_ns is None:
            self.first_message_ns = now_ns
        self.usage = message.usage or self.usage
        self.finish_reason = message.finish_reason or self.finish_reason
        if not message.has_choices:
            return False
        self._keep(message)
        told = message.usage and message.usage.completion_tokens
        if told is not None:
            tokens = max(told - self._counted, 0)
        elif message.token_ids is not None:
            tokens = len(message.token_ids)
        else:
            tokens = int(message.content)
        self._counted += tokens
        if not tokens and not message.content:
            return False
        self.times_ns.append(now_ns)
        self.tokens.append(tokens)
        self.batched.append(not is_first)
        return True

    def _keep(self, message: Message) -> None:
        self._told_ids += len(message.token_ids or ())
        if self._keeps:
            self.text.append(message.text)
            self.token_ids += message.token_ids or ()
