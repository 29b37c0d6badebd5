"""KV events on ZeroMQ sockets: a publisher for each replica, and replay.

Frames, sequence numbers and replay: vLLM 0.33.0, distributed/kv_events.py, as specs/serve.md quotes them, section 9.
"""
import asyncio
import os
import re
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import zmq
import zmq.asyncio

from simulator.domain.serving import LOCAL, KvEvents
from simulator.errors import InputErrors
from simulator.live.kv_events import ENCODINGS, Event

END = b"\xff" * 8               # sequence number behind the last message of a replay
WILD = ("*", "0.0.0.0", "[::]")


class Source(NamedTuple):
    """A replica, or a data-parallel rank of one, as subscribers see it."""

    rank: int
    model: str


class Publishers:
    """Publishes the events of all replicas, each in its own order.

    settings : endpoints, limits. encoding : of `kv_events.ENCODINGS`. sources : by index of the replica.
    """

    def __init__(self, settings: KvEvents, encoding: str, sources: Sequence[Source]):
        self._settings, self._encode, self._sources = settings, ENCODINGS[encoding], sources
        self._context = zmq.Context()
        self._counts = [0] * len(sources)
        self._kept = [deque(maxlen=settings.buffer_steps) for _ in sources]
        self.sockets: list[zmq.Socket] = []
        self._routers: list[zmq.asyncio.Socket] = []
        self._tasks: list[asyncio.Task] = []
        self._topics = [b""] * len(sources)
        self.endpoints: list[str] = []
        self.replay_endpoints: list[str] = []

    def open(self, host: str, ports: Sequence[int]) -> None:
        """Open all sockets; call it in the loop that answers requests for replay.

        host, ports : at which the server listens; a port of each replica, or one for all.
        """
        settings, address = self._settings, os.environ.get("POD_IP") or host
        for index, source in enumerate(self._sources):
            port = ports[index if len(ports) > 1 else 0]
            topic = f"kv@{address}:{port}@{source.model}" if settings.topic is None else settings.topic
            self._topics[index] = topic.encode()
            publisher = self._context.socket(zmq.PUB)
            publisher.set(zmq.SNDHWM, settings.hwm)
            publisher.set(zmq.LINGER, 1000)
            self.sockets.append(publisher)
            self.endpoints.append(_attach(publisher, settings.endpoint, index, source.rank))
            if settings.replay_endpoint is not None:
                router = zmq.asyncio.Context(self._context).socket(zmq.ROUTER)
                router.set(zmq.SNDHWM, settings.buffer_steps + 1)       # a whole replay; a reader that does not read
                router.set(zmq.LINGER, 0)                               # gets no more
                self._routers.append(router)
                self.replay_endpoints.append(_bind(router, settings.replay_endpoint, index))
                self._tasks.append(asyncio.get_running_loop().create_task(self._replay(router, index)))

    def close(self) -> None:
        """Close all sockets; messages that are not sent yet have a second."""
        for task in self._tasks:
            task.cancel()
        for socket in (*self.sockets, *self._routers):
            socket.close()
        self._context.term()

    def publish(self, index: int, events: list[Event]) -> None:
        """Publish the events of a step."""
        payload = self._encode(time.time(), events, self._sources[index].rank)
        number = self._counts[index].to_bytes(8, "big")
        self._counts[index] += 1
        self._kept[index].append((number, payload))
        if self.sockets:
            self.sockets[index].send_multipart((self._topics[index], number, payload))

    def table(self) -> list[dict]:
        """Return where the events of each replica are published."""
        return [{"replica": index, "data_parallel_rank": source.rank, "endpoint": endpoint,
                 "replay_endpoint": self.replay_endpoints[index] if self.replay_endpoints else None,
                 "topic": self._topics[index].decode()}
                for index, (source, endpoint) in enumerate(zip(self._sources, self.endpoints, strict=True))]

    async def _replay(self, router: zmq.asyncio.Socket, index: int) -> None:
        """Answer requests for the messages from a sequence number on."""
        while True:
            frames = await router.recv_multipart()
            if len(frames) != 3 or len(frames[2]) != len(END):
                continue
            client, _, first = frames
            for number, payload in [kept for kept in self._kept[index] if kept[0] >= first]:
                await router.send_multipart((client, b"", self._topics[index], number, payload))
            await router.send_multipart((client, b"", b"", END, b""))


def _split(endpoint: str) -> tuple[str, int]:
    """Return host and port of tcp://HOST:PORT."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return host, int(port)


def _bind(socket, endpoint: str, offset: int) -> str:
    """Listen at an endpoint, `offset` ports further, 0: any; return the endpoint."""
    host, port = _split(endpoint)
    try:
        socket.bind(f"tcp://{'*' if host in WILD else host}:{port and port + offset}")
    except zmq.ZMQError as error:
        raise InputErrors([f"serve.kv_events: KV events cannot be published at {host}:{port and port + offset}: "
                           f"{error}"]) from None
    return socket.get(zmq.LAST_ENDPOINT).decode()


def _attach(socket, endpoint: str, index: int, rank: int) -> str:
    """Listen at an endpoint of this machine, or connect to another one's.

    Return the endpoint. Each replica listens at a port of its own; at a subscriber's, ranks have ports of their own.
    """
    host, port = _split(endpoint)
    if host in WILD or re.match(LOCAL, endpoint):
        return _bind(socket, endpoint, index)
    socket.connect(f"tcp://{host}:{port + rank}")
    return f"tcp://{host}:{port + rank}"
