"""The HTTP face: routes, bodies and streams on aiohttp, with vLLM's paths, bodies and statuses."""
import asyncio
import hmac
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
import numpy as np
from aiohttp import web

from simulator.domain.serving import Serve
from simulator.live import logprobs
from simulator.live.answers import Answer, Answers
from simulator.live.bodies import (
    UNREAD,
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    NoRoute,
    Refused,
    TokenizeBody,
    chat_text,
    content_text,
    read_body,
)
from simulator.live.cache_paths import CachePaths
from simulator.live.demands import demand_of
from simulator.live.exchange import CHAT, DONE, PREFIXES, TEXT, Choice, Exchange, Head
from simulator.live.faults import Breakage, Faults
from simulator.live.fleet import Full
from simulator.live.metrics import Siblings, Tally, add_own, loads
from simulator.live.naming import adapters_of, check_model, names_of
from simulator.live.pages import PAGES
from simulator.live.service import Service
from simulator.live.sglang_face import SglangFace
from simulator.live.spans import Spans, request_name
from simulator.live.texts import Prompt
from simulator.live.words import FIRST_ID, Words

DEFAULT_MAX_TOKENS = 16         # of completions, as vLLM's
GUARDED = ("/v1", "/generate", "/flush_cache", "/abort_request")       # paths that need the key
STALL_S = 0.05                  # between two looks for the end of the session
LONG_ANSWER = 1_000             # tokens
MOST_FIELD_NAMES = 100          # counted apart; others count as one
JSON = {"Content-Type": "application/json"}
STREAM = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


class Facts(NamedTuple):
    """Facts for clients.

    model : its name. version : of the engine. vocabulary : number of token ids. key : that clients must give; "": none.
    serve : the table.
    """

    model: str
    version: str
    vocabulary: int
    key: str = ""
    serve: Serve = Serve()


class Server:
    """Handles the HTTP requests of all connections."""

    def __init__(self, service: Service, answers: Answers, words: Words, facts: Facts, tally: Tally):
        self.service, self.answers, self.words, self.facts, self.tally = service, answers, words, facts, tally
        self.publishers = None                  # of KV events
        self.spans: Spans | None = None         # of requests
        self.template: Callable[[ChatBody | TokenizeBody], str] = chat_text     # text of a chat
        self.faults = Faults(answers.seed)
        self._pod = {"x-inference-namespace": os.environ["POD_NAMESPACE"]} if os.environ.get("POD_NAMESPACE") else {}
        self.is_closing = False
        self.http_ns = self.metrics_ns = 0      # CPU time of writing answers, and pages
        self.exchanges: dict[str, type[Exchange]] = {CHAT: Exchange, TEXT: Exchange}     # by kind of answer
        self.statuses: Counter = Counter()
        self.ignored: Counter = Counter()
        self.num_open: Counter = Counter()      # HTTP requests, by door
        self.open: dict[int, Exchange] = {}     # by its id in Python
        self.second = lambda: time.monotonic_ns() // 10**9
        self._counted_second, self._in_second = -1, 0
        self._began_s = int(time.time())
        self._routes = {
            ("POST", "/v1/completions"): self._completions, ("POST", "/v1/chat/completions"): self._chat,
            ("GET", "/v1/models"): self._models, ("GET", "/health"): self._health, ("GET", "/ping"): self._health,
            ("POST", "/ping"): self._health, ("GET", "/version"): self._version, ("GET", "/load"): self._load,
            ("POST", "/tokenize"): self._tokenize, ("POST", "/detokenize"): self._detokenize,
            ("GET", "/metrics"): self._metrics, ("GET", "/v1/replicas"): self._replicas,
            ("GET", "/kv_event_sources"): self._kv_event_sources}
        self._routes |= CachePaths(self).routes(facts.serve.like)
        if facts.serve.like == "sglang":
            self._routes |= SglangFace(self).routes() | {("GET", "/health_generate"): self._health}

    async def handle(self, request: web.BaseRequest, door: int = -1) -> web.StreamResponse:
        """Answer a request.

        door : the replica that owns the port it came to; -1: the router chooses.
        """
        try:
            answer = await self._answer(request, door)
        except Refused as refused:
            body = (refused.body_of_sglang(not request.path.startswith("/v1/"))
                    if self.facts.serve.like == "sglang" else refused.body())
            answer = web.Response(status=refused.status, body=body, headers=JSON | refused.headers)
        self.statuses[answer.status] += 1
        return answer

    async def _answer(self, request: web.BaseRequest, door: int) -> web.StreamResponse:
        route = self._routes.get((request.method, request.path))
        if route is None:
            is_known = any(path == request.path for _, path in self._routes)
            raise NoRoute(405, "Method Not Allowed") if is_known else NoRoute(404, "Not Found")
        if self.facts.key and request.path.startswith(GUARDED) and not self._has_key(request):
            return web.Response(status=401, body=b'{"error": "Unauthorized"}', headers=JSON)
        return await route(request, door)

    def _has_key(self, request: web.BaseRequest) -> bool:
        given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        return hmac.compare_digest(given, b"Bearer " + self.facts.key.encode())

    # ---- completions

    async def _completions(self, request: web.BaseRequest, door: int) -> web.StreamResponse:
        body = await self.body_of(request, CompletionBody)
        prompts = body.prompt if isinstance(body.prompt, list) else [body.prompt]
        if len(kinds := {type(each) for each in prompts}) != 1:
            raise Refused(400, "prompt: expected a text, token ids, or a list of either that is not empty",
                          param="prompt")
        if kinds == {int}:
            prompts = [prompts]
        found = [await self.prompt_of(each, body.add_special_tokens is not False) for each in prompts]
        if body.max_tokens == 0 and not body.echo:
            raise Refused(400, "max_tokens must be at least 1, got 0.", param="max_tokens")
        most = 1 if body.is_echo_alone else (
            body.max_tokens or self.facts.serve.default_max_tokens or DEFAULT_MAX_TOKENS)
        return await self.serve(request, door, TEXT, body, found, most)

    async def _chat(self, request: web.BaseRequest, door: int) -> web.StreamResponse:
        body = await self.body_of(request, ChatBody)
        if not body.messages:
            raise Refused(400, "messages: expected at least one", param="messages")
        text = self.template(body)
        ids = await self._encoded(text, bool(body.add_special_tokens))
        last = [each for each in body.messages if each.role == "user"][-1:] if self.facts.serve.text == "echo" else ()
        echoed = await self._encoded(content_text(last[0].content)) if last else ids
        prompt = Prompt(ids, echoed if len(echoed) else ids, text)
        most = body.max_completion_tokens or body.max_tokens or self.facts.serve.default_max_tokens or None
        return await self.serve(request, door, CHAT, body, [prompt], most)

    async def prompt_of(self, given: str | list[int], with_special: bool = True) -> Prompt:
        """Return the prompt of a text, or of ids, which are checked. Raises Refused."""
        if not isinstance(given, str):
            ids = self._checked(given)
            return Prompt(ids, ids, self.words.decode(given))
        ids = await self._encoded(given, with_special)
        echoed = await self._encoded(given) if self.facts.serve.text == "echo" else ids
        return Prompt(ids, echoed if len(echoed) else ids, given)

    async def _encoded(self, text: str, with_special: bool = False) -> np.ndarray:
        """Return the tokens of a text; other clients are served while a tokenizer reads a long one."""
        if len(text) <= self.words.most_at_once:
            return self.words.encode(text, with_special)
        return await asyncio.to_thread(self.words.encode, text, with_special)

    def _checked(self, ids: list[int]) -> np.ndarray:
        end = max(self.facts.vocabulary, FIRST_ID)
        if (wrong := next((each for each in ids if not 0 <= each < end), None)) is not None:
            raise Refused(400, f"Token id {wrong} is out of vocabulary", param="prompt")
        return np.array(ids, np.int32)

    async def body_of(self, request: web.BaseRequest, kind: type) -> Any:
        if request.content_type != "application/json":
            raise Refused(400, "Unsupported Media Type: Only 'application/json' is allowed", UNREAD)
        try:
            data = await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise Refused(413, "The body of the request is too large.", headers={"Connection": "close"}) from None
        body, unknown = read_body(data, kind)
        for name in unknown:
            self.ignored[name[:128] if name in self.ignored or len(self.ignored) < MOST_FIELD_NAMES else "other"] += 1
        check_model(body.model, self.facts.model, self.service.fleet.labels)
        return body

    async def serve(self, request, door: int, kind: str, body, prompts: list[Prompt], most: int | None):
        """Serve the choices of a request: n of each prompt.

        kind : CHAT, TEXT or GENERATE. body : as of a completion or a chat. most : tokens of an answer.
        """
        if self.is_closing:
            raise Refused(503, "The server is shutting down.", "Service Unavailable")
        if self.service.fleet.is_stopped:
            raise Refused(500, "EngineCore encountered an issue.", "InternalServerError")
        options = body.stream_options
        if options is not None and options.include_usage is None:
            options.include_usage = self.facts.serve.like == "vllm"
        self._count_in()
        breakage = self.faults.draw()
        caps = [self.answers.check(len(prompt.ids), body, most) for prompt in prompts]
        demand = demand_of(body, self.facts.serve.tool_calls)
        name = body.request_id or request.headers.get("X-Request-Id") or uuid4().hex
        head = Head(kind, PREFIXES[kind] + name, self.facts.model)
        exchange = self.exchanges[kind](head, body, self.words, [], self.facts.serve.stream_interval)
        first = self.service.fleet.count
        names = names_of(request.headers, body.model, body.session_id, body.user)
        names["grammar"] = "" if demand is None else demand.grammar
        self.num_open[door] += 1
        self.open[id(exchange)] = exchange
        try:
            for prompt, cap in zip(prompts, caps, strict=True):
                siblings = Siblings(body.n or 1)
                for _ in range(siblings.count):
                    self._submit(exchange, prompt, self.answers.make(prompt, body, cap, demand), door, names)
                    self.tally.join(exchange.choices[-1].row, siblings)
                    self._trace(exchange, request.headers)
                    if len(exchange.choices[-1].answer.pieces) > LONG_ANSWER:
                        await asyncio.sleep(0)          # others have their turn
            return await (self._stream if body.stream else self._whole)(request, exchange, first, breakage)
        finally:
            self.num_open[door] -= 1
            del self.open[id(exchange)]
            for choice in exchange.choices:
                if not choice.is_over:
                    self.service.leave(choice.row)

    def _count_in(self) -> None:
        """Count a request. Raises Refused: it is one too many in this second of the wall."""
        second, most = self.second(), self.facts.serve.limits.requests_per_s
        if second != self._counted_second:
            self._counted_second, self._in_second = second, 0
        self._in_second += 1
        if most and self._in_second > most:
            raise Refused(429, f"More than {most:g} requests in a second.", "Too Many Requests",
                          headers={"Retry-After": "1"})

    def _submit(self, exchange: Exchange, prompt: Prompt, answer: Answer, door: int, names: dict[str, str]) -> None:
        most, ids, asked = exchange.body.prompt_logprobs, prompt.ids, answer.request._replace(door=door, labels=names)
        lead = 0
        if exchange.head.kind == TEXT and exchange.body.echo:
            lead, text = len(ids), self.words.read(ids.tolist())
            answer = answer.of(text) if exchange.body.is_echo_alone else answer.behind(text)
        choice = Choice(len(exchange.choices), answer, len(ids), None if most is None else logprobs.of_prompt(
            ids.tolist(), self.words, most), lead)
        try:
            choice.row = self.service.submit(asked, exchange.listener(choice, self._cached_tokens))
        except Full:
            raise Refused(503, "The session has as many requests as --most-requests allows.",
                          "Service Unavailable") from None
        exchange.choices.append(choice)

    def abort(self, exchange: Exchange) -> None:
        """End the answers of an exchange with the tokens that are due."""
        for choice in exchange.choices:
            if not choice.is_over:
                self.service.leave(choice.row)
                choice.abort()
        exchange.has_news.set()

    def _trace(self, exchange: Exchange, headers) -> None:
        """Take note of the last request of an exchange, for its span."""
        if self.spans is not None:
            choice, head, body = exchange.choices[-1], exchange.head, exchange.body
            self.spans.note(choice.row, request_name(head.kind, head.id, choice.index, body.n or 1), body,
                            choice.answer.request.max_tokens, headers)

    def _cached_tokens(self, row: int) -> int:
        return int(self.service.fleet.workload.requests["cached_tokens"][row])

    def _headers(self, row: int) -> dict[str, str]:
        """Return the headers that say where a request is, once it has had news."""
        found = self.service.fleet.workload.requests[row]
        return self._pod | {"x-simulator-arrival-ns": str(found["arrival_ns"]), "x-simulator-request": str(row),
                            "x-inference-pod": os.environ.get("POD_NAME") or f"replica-{found['replica']}"}

    async def _whole(self, request, exchange: Exchange, first: int, breakage: Breakage | None) -> web.Response:
        while not exchange.is_over:
            exchange.has_news.clear()
            await exchange.has_news.wait()
        self._note_lag(exchange)
        if (failure := exchange.failure()) is not None:
            raise failure
        began_ns = time.thread_time_ns()
        answer = web.Response(body=exchange.whole(), headers=JSON | self._headers(first))
        self.http_ns += time.thread_time_ns() - began_ns
        if breakage is not None and not breakage.close(request.transport) and breakage.name == "stall":
            await self._stall()
        return answer

    async def _stream(self, request, exchange: Exchange, first: int, breakage: Breakage | None) -> web.StreamResponse:
        response = web.StreamResponse(headers=STREAM)
        with suppress(ConnectionResetError):    # the client has left
            await self._write(request, response, exchange, first, breakage)
        return response

    async def _write(self, request, response: web.StreamResponse, exchange: Exchange, first: int,
                     breakage: Breakage | None) -> None:
        is_over = False
        while not is_over:
            await exchange.has_news.wait()
            exchange.has_news.clear()
            failure = exchange.failure()
            if not response.prepared:           # a request that is refused at once has no stream
                if failure is not None:
                    raise failure
                response.headers.update(self._headers(first))
                await response.prepare(request)
            began_ns, is_over = time.thread_time_ns(), exchange.is_over or failure is not None
            data = self._written(exchange, failure, breakage)
            self.http_ns += time.thread_time_ns() - began_ns
            if data:
                self._note_lag(exchange)
                await response.write(data + DONE if is_over and not (breakage and breakage.omits_end) else data)
            if breakage is not None and breakage.has_broken:
                await self._break(request, response, breakage)
                return
        await response.write_eof()

    @staticmethod
    def _written(exchange: Exchange, failure: Refused | None, breakage: Breakage | None) -> bytes:
        """Return the news of a stream."""
        if failure is not None:
            return b"data: %b\n\n" % failure.body()
        return b"".join(exchange.events()) if breakage is None else breakage.pass_on([*exchange.events()])

    async def _break(self, request, response: web.StreamResponse, breakage: Breakage) -> None:
        if breakage.name == "stall":
            await self._stall()
        if not breakage.close(request.transport):
            await response.write_eof()

    async def _stall(self) -> None:
        """Say nothing until the client leaves, or the session ends."""
        while not self.is_closing:
            await asyncio.sleep(STALL_S)

    def _note_lag(self, exchange: Exchange) -> None:
        clock = self.service.clock
        if exchange.due_ns is not None and not clock.is_fast:
            self.service.lag.add(max(clock.wall_ns() - exchange.due_ns, 0))
        exchange.due_ns = None

    # ---- the other routes

    async def _models(self, request, door: int) -> web.Response:
        names = [self.facts.model, *adapters_of(self.service.fleet.labels)]
        return _json({"object": "list", "data": [{
            "id": name, "object": "model", "created": self._began_s, "owned_by": self.facts.serve.like, "root": name,
            "parent": None if name == self.facts.model else self.facts.model,
            "max_model_len": self.service.fleet.max_model_len, "permission": []} for name in names]})

    async def _health(self, request, door: int) -> web.Response:
        return web.Response(status=503 if self.is_closing or self.service.fleet.is_stopped else 200)

    async def _version(self, request, door: int) -> web.Response:
        return _json({"version": self.facts.version})

    async def _load(self, request, door: int) -> web.Response:
        return _json({"server_load": self.num_open[door]})

    async def _replicas(self, request, door: int) -> web.Response:
        return _json(loads(self.service.fleet))

    async def _kv_event_sources(self, request, door: int) -> web.Response:
        return _json([] if self.publishers is None else self.publishers.table())

    async def _tokenize(self, request, door: int) -> web.Response:
        body = await self.body_of(request, TokenizeBody)
        if (body.prompt is None) == (body.messages is None):
            raise Refused(400, "expected either prompt or messages", param="prompt")
        text = body.prompt if body.messages is None else self.template(body)
        special = body.messages is None if body.add_special_tokens is None else body.add_special_tokens
        ids = (await self._encoded(text, special)).tolist()
        return _json({"count": len(ids), "max_model_len": self.service.fleet.max_model_len, "tokens": ids,
                      "token_strs": list(map(self.words.name, ids)) if body.return_token_strs else None})

    async def _detokenize(self, request, door: int) -> web.Response:
        body = await self.body_of(request, DetokenizeBody)
        return _json({"prompt": self.words.decode(self._checked(body.tokens).tolist())})

    async def _metrics(self, request, door: int) -> web.Response:
        began_ns = time.thread_time_ns()
        text = self.page(door, self.facts.serve.metrics == "full" or request.query.get("full") == "1")
        self.metrics_ns += time.thread_time_ns() - began_ns
        return web.Response(text=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    def page(self, door: int, is_full: bool) -> str:
        """Return the page of /metrics of a door; is_full : with all families."""
        made = PAGES[self.facts.serve.like](self.service, self.tally, self.facts.model,
                                            self.service.fleet.replicas_of(door), is_full)
        if is_full:
            add_own(made, self.service, self.ignored)
        return made.text()


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), headers=JSON)


async def listen(handler, host: str, port: int, limits, tls=None) -> tuple[web.ServerRunner, int]:
    """Listen on a port, 0: any; return the runner and the port.

    limits : settings.Limits. tls : ssl.SSLContext; None: plain HTTP.
    """
    loop = asyncio.get_running_loop()

    def make_request(message, payload, protocol, writer, task):
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=limits.body_bytes)

    async def handle(request):
        if len(server.connections) > limits.connections:
            full = Refused(503, "Too many connections.", "Service Unavailable")
            return web.Response(status=503, body=full.body(), headers=JSON | {"Connection": "close"})
        return await handler(request)

    server = web.Server(handle, request_factory=make_request, handler_cancellation=True,
                        max_line_size=limits.header_bytes, max_field_size=limits.header_bytes,
                        keepalive_timeout=limits.idle_s, access_log=None, auto_decompress=False)
    runner = web.ServerRunner(server, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, host, port, backlog=1024, ssl_context=tls).start()
    return runner, runner.addresses[0][1]
