"""A server that answers at once, on this machine, for the client's self-test. It is no model of real servers."""
import asyncio
import json
import signal
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection

HEADERS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PATIENCE_S = 30.0               # until the process answers, and until it has ended


class Loopback:
    """The server in a process of its own; a context manager. `url`: its address."""

    def __enter__(self):
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        if not ours.poll(PATIENCE_S):
            self.__exit__()
            raise RuntimeError("the server of the self-test does not start")
        self.url = f"http://127.0.0.1:{ours.recv()}"
        self._pipe = ours
        return self

    def __exit__(self, *exception):
        self._process.terminate()
        self._process.join(PATIENCE_S)


def _serve(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)    # Ctrl-C reaches all processes; the first one ends this one
    asyncio.run(_listen(pipe.send))


async def _listen(tell: Callable[[int], None]) -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    tell(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests of one connection: `max_tokens` messages each, one after the other."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            count = json.loads(await reader.readexactly(length))["max_tokens"]
            writer.write(HEADERS)
            for number in range(1, count + 1):
                writer.write(_chunk(_message(number)))
                await writer.drain()
                await asyncio.sleep(0)
            writer.write(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def _message(number: int) -> bytes:
    return (b'data: {"id":"cmpl-0","object":"text_completion","created":0,"model":"loopback","choices":[{"index":0,'
            b'"text":" of","logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":1,"total_tokens":%d,'
            b'"completion_tokens":%d}}\n\n' % (number + 1, number))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
