"""The client's record of one request: messages, tokens and times."""
from array import array

from simulator.study.observe.messages import Message, NoMessage, Usage, message_of
from simulator.study.observe.sse import Event

OK = "ok"
DONE = b"[DONE]"


class Answer:
    """Filled while the answer arrives.

    Times are ns of the Clock; None: the event did not happen.

    sent_ns : just before the request was written to its open connection.
    headers_ns, first_message_ns, first_token_ns, last_token_ns : arrival times. A first message may hold no token: in
        chat it only names a role.
    end_ns : the exchange is over.
    status : OK, or the kind of failure; None: in progress. error : its text.
    times_ns, tokens, batched : of each message with tokens: when it was read; its number of tokens, by the
        usage in it, else 1; 1 where it was read together with the one before.
    usage : the last usage in a message.
    text, token_ids : of the answer, where `keeps` is set.

    Parameters
    ----------
    keeps : a later prompt needs the answer.
    """

    __slots__ = ("_counted", "_keeps", "_num_ids", "batched", "end_ns", "error", "finish_reason", "first_message_ns",
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
        self._counted = self._num_ids = 0

    @property
    def first_token_ns(self) -> int | None:
        """Time of the first token."""
        return self.times_ns[0] if self.times_ns else None

    @property
    def last_token_ns(self) -> int | None:
        """Time of the last token, or, without streaming, of the whole answer."""
        if self.times_ns:
            return self.times_ns[-1]
        return self.end_ns if self.status == OK else None

    @property
    def input_tokens(self) -> int | None:
        """Tokens of the prompt, as the server counts them."""
        return self.usage and self.usage.prompt_tokens

    @property
    def output_tokens(self) -> int | None:
        """Tokens of the answer, as the server counts or lists them; None: neither."""
        reported = self.usage and self.usage.completion_tokens
        return self._num_ids or None if reported is None else reported

    @property
    def cached_tokens(self) -> int | None:
        """Tokens of the prompt that the server found in its cache."""
        details = self.usage and self.usage.prompt_tokens_details
        return details and details.cached_tokens

    def fail(self, status: str, error: str) -> None:
        """Record a failure; the first one stays."""
        if self.status is None:
            self.status, self.error = status, " ".join(error.split())

    def take(self, events: list[Event], now_ns: int) -> bool:
        """Process the events of one read; return whether more are to follow."""
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
        """Process an answer that does not stream."""
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
        """Record the end of the stream: it is a success if the answer was complete."""
        if self.is_done or self.finish_reason is not None:
            self.status = self.status or OK
        self.fail("broken", "the stream ended before the answer did")

    def _add(self, message: Message, now_ns: int, is_first: bool) -> bool:
        """Record a message; return whether it holds tokens."""
        if message.has_choices and self.first_message_ns is None:
            self.first_message_ns = now_ns
        self.usage = message.usage or self.usage
        self.finish_reason = message.finish_reason or self.finish_reason
        if not message.has_choices:
            return False
        self._keep(message)
        reported = message.usage and message.usage.completion_tokens
        if reported is not None:
            tokens = max(reported - self._counted, 0)
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
        self._num_ids += len(message.token_ids or ())
        if self._keeps:
            self.text.append(message.text)
            self.token_ids += message.token_ids or ()
