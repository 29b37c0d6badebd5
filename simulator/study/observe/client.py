"""A client of one server: sends a request, and records the answer with times.

aiohttp is the library of vLLM's benchmark, AIPerf and inference-perf. One connector without limit, no
time limit but ours, no redirects or other addresses, no retry: a retry would be another request.
"""
import asyncio
from typing import NamedTuple

from simulator.errors import MissingExtra
from simulator.study.observe.answer import Answer
from simulator.study.observe.clock import Clock
from simulator.study.observe.messages import error_of
from simulator.study.observe.sse import EventParser

try:
    import aiohttp
except ImportError:
    aiohttp = None

# Shorter than a server keeps idle connections, so that it does not close one that is reused: vLLM, 5 s
# (vllm/envs.py, VLLM_HTTP_TIMEOUT_KEEP_ALIVE), is also uvicorn's.
KEEP_ALIVE_S = 4.0
AFTER_DONE_S = 1.0              # for bytes behind the last event of a stream
ERROR_BYTES = 1 << 16
MOST_BYTES = 1 << 24             # of an answer to a query: metrics of 100 engines take 2 MB
HIDDEN = "(key)"                # replaces the key in texts of the server


class Order(NamedTuple):
    """A request in the form in which it is sent.

    path : of the interface, as /v1/completions.
    timeout_s : longest wait of the client. gives_up : the limit is the workload's, not --timeout.
    """

    path: str
    body: bytes
    timeout_s: float
    gives_up: bool = False


def check_installed() -> None:
    """Raise MissingExtra without aiohttp."""
    if aiohttp is None:
        raise MissingExtra(["observe needs aiohttp: install it with pip install 'simulator[observe]'"])


class Client:
    """Connections to a server; a context manager, inside an event loop.

    url : as http://host:8000. key : sent with each request to this server, and to no other address.
    """

    def __init__(self, url: str, clock: Clock, key: str | None = None):
        self._url, self._clock, self._key = url, clock, key
        self._session = None
        self._key_headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._headers = {"Content-Type": "application/json"} | self._key_headers

    async def __aenter__(self):
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(self._note_sent)
        trace.on_connection_reuseconn.append(self._note_sent)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None), trace_configs=[trace])
        return self

    async def __aexit__(self, *exception):
        await self._session.close()

    async def get(self, path: str, timeout_s: float) -> tuple[int, bytes]:
        """Return status and content of an address.

        path : of the server; or a full http:// address, which gets no key.

        Raises
        ------
        OSError
            The server does not answer.
        """
        url, headers = (path, {}) if "://" in path else (self._url + path, self._key_headers)
        try:
            async with asyncio.timeout(timeout_s), self._session.get(
                    url, headers=headers, allow_redirects=False) as response:
                content = bytearray()
                async for chunk in response.content.iter_any():
                    content += chunk
                    if len(content) > MOST_BYTES:
                        raise OSError(f"an answer of more than {MOST_BYTES:,} bytes")
                return response.status, bytes(content)
        except TimeoutError:
            raise OSError(f"no answer within {timeout_s:g} s") from None
        except aiohttp.ClientError as error:
            raise OSError(self._hidden(str(error))) from None

    async def exchange(self, order: Order, answer: Answer) -> None:
        """Send a request, and fill the answer; a failure is recorded in it, never raised."""
        try:
            async with asyncio.timeout(order.timeout_s) as limit:
                async with self._session.post(self._url + order.path, data=order.body, headers=self._headers,
                                              allow_redirects=False, trace_request_ctx=answer) as response:
                    answer.headers_ns = self._clock.now_ns()
                    await self._read(response, answer, limit)
        except TimeoutError:
            if not answer.is_done:
                answer.fail("gave_up" if order.gives_up else "timeout", f"no end within {order.timeout_s:g} s")
        except (aiohttp.ClientError, OSError) as error:
            kind = "connection" if answer.headers_ns is None else "broken"
            if not answer.is_done:
                answer.fail(kind, self._hidden(str(error) or type(error).__name__))
        answer.end_ns = answer.end_ns or self._clock.now_ns()
        answer.close()

    async def _read(self, response, answer: Answer, limit: asyncio.Timeout) -> None:
        if response.status != 200:
            error = error_of(await response.content.read(ERROR_BYTES))
            answer.fail(f"http_{response.status}", self._hidden(error) or str(response.reason))
            return
        if response.content_type == "application/json":
            answer.take_whole(await response.read())
            answer.error = self._hidden(answer.error)
            return
        parser, more = EventParser(), True
        while received := await response.content.readany():
            if more:
                now_ns = self._clock.now_ns()
                more = answer.take(parser.feed(received), now_ns)
                if answer.is_done:
                    answer.end_ns = now_ns
                    limit.reschedule(asyncio.get_running_loop().time() + AFTER_DONE_S)
                elif not more:
                    answer.error = self._hidden(answer.error)
                    return

    async def _note_sent(self, session, context, parameters) -> None:
        if isinstance(context.trace_request_ctx, Answer):
            context.trace_request_ctx.sent_ns = self._clock.now_ns()

    def _hidden(self, text: str) -> str:
        return text.replace(self._key, HIDDEN) if self._key else text
