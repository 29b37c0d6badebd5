"""A stand-in for a server of OpenAI's interface, on loopback: it speaks SSE after known delays, and fails as told.

It tests the parser, the clocks, coordinated omission and failures of `observe`, and nothing else: no scheduler, no
batch, no cache is behind it, so that no latency it shows says anything of a real server.

As a program it prints its address and serves until it is killed: python tests/support/sse_server.py
"""
import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable
from types import MappingProxyType
from typing import NamedTuple

HEAD = "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\n{rest}\r\n"
SERVED = "stand-in"


class Manners(NamedTuple):
    """How it answers.

    ttft_s, tpot_s : delays of the first token, and of each later one. usage : "continuous", "final" or "none".
    events_per_read : that go out in one write. line_end : of events. cut_bytes : pieces in which an event is
    written; 0: whole. text : of each token. is_streaming : False: whole answers, whatever is asked. fails : length
    of a prompt -> kind of failure. one_at_a_time : it serves one request after the other. token_ids : it tells them
    where asked. short_by : tokens that answers lack. models : name -> max_model_len. tokens_per_word, fixed_tokens
    : of prompts in words. key : that it wants. page : returns the text of /metrics; None: one of its own.
    """

    ttft_s: float = 0.0
    tpot_s: float = 0.0
    usage: str = "continuous"
    events_per_read: int = 1
    line_end: str = "\n"
    cut_bytes: int = 0
    text: str = " of"
    is_streaming: bool = True
    fails: dict = MappingProxyType({})
    one_at_a_time: bool = False
    token_ids: bool = True
    short_by: int = 0
    models: dict = MappingProxyType({SERVED: 8192})
    tokens_per_word: float = 1.5
    fixed_tokens: int = 10
    key: str | None = None
    page: Callable[[], str] | None = None


class Asked(NamedTuple):
    """A request that came: when, by `time.perf_counter()`."""

    time_s: float
    path: str
    headers: dict
    body: dict


class StandIn:
    """The server in a thread; a context manager. `url`: where it is; `asked`: Asked requests that want an answer."""

    def __init__(self, **manners):
        self.manners, self.asked, self.pages = Manners(**manners), [], []
        self.url = self._loop = self._stop = None

    def __enter__(self):
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready.set)), daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *exception):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _serve(self, tell):
        self._loop, self._stop, self._turn = asyncio.get_running_loop(), asyncio.Event(), asyncio.Lock()
        self._connections = set()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        tell()
        await self._stop.wait()
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connection(self, reader, writer):
        self._connections.add(asyncio.current_task())
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(asyncio.current_task())
            writer.close()

    async def _one(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        content = await reader.readexactly(int(headers.get("content-length", 0)))
        if self.manners.key and headers.get("authorization") != f"Bearer {self.manners.key}":
            return await whole(writer, 401, {"error": {"message": f"wrong key: {headers.get('authorization')}"}})
        if method == "GET":
            self.pages.append(path)
            return await self._page(writer, path)
        request = Asked(time.perf_counter(), path, headers, json.loads(content))
        self.asked.append(request)
        if not self.manners.one_at_a_time:
            return await self._answer(writer, request)
        async with self._turn:
            return await self._answer(writer, request)

    async def _page(self, writer, path):
        if path == "/v1/models":
            return await whole(writer, 200, {"object": "list", "data": [
                {"id": name, "object": "model", "max_model_len": length}
                for name, length in self.manners.models.items()]})
        if path == "/version":
            return await whole(writer, 200, {"version": "0.0.stand-in"})
        if path == "/metrics" and self.manners.page is not None:
            return await whole(writer, 200, self.manners.page())
        if path == "/metrics":
            return await whole(writer, 200, (
                f'# HELP requests_total that came\nrequests_total{{model_name="{SERVED}"}} {len(self.asked)}\n'
                'vllm:cache_config_info{block_size="16",enable_prefix_caching="True"} 1.0\n'))
        return await whole(writer, 404, {"error": {"message": "no such page"}})

    async def _answer(self, writer, request):
        manners, body = self.manners, request.body
        fails = manners.fails.get(len(body.get("prompt", ())))
        if fails == "500":
            return await whole(writer, 500, {"error": {"message": "the engine is\ndead"}})
        if fails == "drop":
            writer.transport.abort()
            return False
        if fails == "redirect":
            return await whole(writer, 307, {}, "Location: http://127.0.0.1:9/elsewhere\r\n")
        if fails == "hang":
            await asyncio.sleep(3600)
        count = body["max_tokens"] - manners.short_by
        if not (body["stream"] and manners.is_streaming):
            await asyncio.sleep(manners.ttft_s + (count - 1) * manners.tpot_s)
            return await whole(writer, 200, self._whole_answer(request, count))
        writer.write(HEAD.format(status=200, reason="OK", kind="text/event-stream; charset=utf-8",
                                 rest="Transfer-Encoding: chunked\r\n").encode())
        return await self._stream(writer, request, count, fails)

    async def _stream(self, writer, request, count, fails):
        manners, waiting, is_chat = self.manners, [], request.path.endswith("/chat/completions")
        due_s = time.perf_counter() + manners.ttft_s
        if is_chat:         # whose turn it is, before there is a token
            await self._write(writer, [self._event(request, {"delta": {"role": "assistant", "content": ""}}, 0)])
        for number in range(1, count + 1):
            if fails == "broken" and number == count // 2 + 1:
                writer.transport.abort()
                return False
            if fails == "ends_early" and number == count // 2 + 1:
                break
            if fails == "error_event" and number == count // 2 + 1:
                waiting.append(f"data: {json.dumps({'error': {'message': 'out of blocks', 'code': 500}})}\n\n")
                break
            if fails == "garbage" and number == count // 2 + 1:
                waiting.append("data: {\"choices\": [\n\n")
                break
            await asyncio.sleep(max(due_s - time.perf_counter(), 0))
            due_s += manners.tpot_s
            reason = "length" if number == count else None
            said = {"delta": {"content": manners.text}} if is_chat else {"text": manners.text}
            if request.body.get("return_token_ids") and manners.token_ids:
                said["token_ids"] = [7000 + number]
            waiting.append(self._event(request, said | {"finish_reason": reason}, number))
            if len(waiting) >= manners.events_per_read:
                await self._write(writer, waiting)
                waiting = []
        else:
            if manners.usage != "none":
                waiting.append(self._event(request, None, count))
            waiting.append("data: [DONE]\n\n")
        await self._write(writer, waiting)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _event(self, request, said, number):
        answer = {"id": "cmpl-1", "object": "chunk", "choices": [] if said is None else [{"index": 0, **said}]}
        if self.manners.usage == "continuous" or said is None:
            answer["usage"] = self._usage(request, number)
        return f": a comment\ndata: {json.dumps(answer, ensure_ascii=False)}\n\n"

    def _usage(self, request, number):
        body = request.body
        if "prompt" in body:
            prompt = len(body["prompt"])
        else:
            words = sum(len(turn["content"].split()) for turn in body["messages"])
            prompt = round(words * self.manners.tokens_per_word) + self.manners.fixed_tokens
        return {"prompt_tokens": prompt, "completion_tokens": number, "total_tokens": prompt + number,
                "prompt_tokens_details": {"cached_tokens": 3}}

    def _whole_answer(self, request, count):
        text = self.manners.text * count
        said = {"message": {"role": "assistant", "content": text}} if "messages" in request.body else {"text": text}
        answer = {"choices": [{"index": 0, "finish_reason": "length", **said}]}
        return answer | ({} if self.manners.usage == "none" else {"usage": self._usage(request, count)})

    async def _write(self, writer, events):
        data = "".join(events).replace("\n", self.manners.line_end).encode()
        if not data:
            return
        size = self.manners.cut_bytes or len(data)
        for begin in range(0, len(data), size):
            piece = data[begin:begin + size]
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if self.manners.cut_bytes:
                await writer.drain()
                await asyncio.sleep(0.001)
        await writer.drain()


async def whole(writer, status, content, headers=""):
    """Write an answer with its length."""
    kind = "text/plain" if isinstance(content, str) else "application/json"
    data = (content if isinstance(content, str) else json.dumps(content)).encode()
    writer.write(HEAD.format(status=status, reason="OK" if status == 200 else "Not so", kind=kind,
                             rest=f"{headers}Content-Length: {len(data)}\r\n").encode() + data)
    await writer.drain()
    return True


if __name__ == "__main__":
    with StandIn(**json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}) as server:
        print(server.url, flush=True)
        sys.stdin.read()
