"""A session from its first port to its last answer: the loop of the clock, signals, and the end."""
import asyncio
import os
import signal
import time
from collections.abc import Callable
from functools import partial

from simulator.errors import InputErrors
from simulator.live.admin import Admin
from simulator.live.alarm import Alarm
from simulator.live.server import Server, listen
from simulator.live.service import Service
from simulator.live.settings import LOOPBACK, Settings

GRACE_NS = 30 * 10**9           # of simulated time, for requests that run when the session ends


class Host:
    """Serves one session.

    announce : called with (ports, admin port or None) when all listen.
    """

    def __init__(self, service: Service, server: Server, settings: Settings,
                 announce: Callable[[list[int], int | None], None]):
        self._service, self._server, self._settings, self._announce = (
            service, server, settings, announce)
        self.signal_number: int | None = None
        self._error: BaseException | None = None        # of the engine
        self._is_called = False
        self._quiet_since_s = time.monotonic()

    async def serve(self) -> None:
        """Serve until the session ends; all requests have ended then."""
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._alarm = Alarm(self._loop, self._turn)
        self._service.wake = self._wake
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self.stop, number)
        runners = []
        try:
            self._announce(*await self._listen(runners))
            await self._until_over()
            self._server.is_closing = True
            await self._let_end()
        finally:
            self._service.abort()
            self._alarm.close()
            await asyncio.sleep(0)              # answers that have just ended are written
            for runner in runners:
                await runner.cleanup()
            if self._server.publishers is not None:
                self._server.publishers.close()
        if self._error is not None:
            raise self._error

    async def _listen(self, runners: list) -> tuple[list[int], int | None]:
        """Open all ports, and add what serves them to a list; return the ports as `announce` takes them."""
        settings, has_admin = self._settings, self._settings.admin_port is not None
        handlers = [(partial(self._server.handle, door=door), settings.host, port, settings.limits, settings.tls)
                    for door, port in (enumerate(settings.replica_ports) if settings.replica_ports else
                                       [(-1, settings.port)])]
        if has_admin:
            handlers.append((Admin(self._service, self._server).handle, LOOPBACK, settings.admin_port, settings.limits))
        ports = []
        for each in handlers:
            runner, port = await _listening(*each)
            runners.append(runner)
            ports.append(port)
        shown = ports[:-1] if has_admin else ports
        if self._server.publishers is not None:
            self._server.publishers.open(settings.host, shown)
        return shown, ports[-1] if has_admin else None

    # ---- the clock

    def _wake(self) -> None:
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_called = False
        try:
            next_ns = self._service.step()
        except BaseException as error:
            self._error, self._service.fleet.is_stopped = error, True
            self._service.fail_all()
            self._end.set()
            return
        if self._service.fleet.is_stopped:
            self._end.set()
        if self._service.fleet.num_open:
            self._quiet_since_s = time.monotonic()
        if next_ns is not None and next_ns <= self._service.clock.wall_ns():
            self._wake()                        # other work has its turn first
        else:
            self._alarm.set(next_ns)

    # ---- the end

    def stop(self, number: int | None = None) -> None:
        """End the session, once running requests have ended; called again: at once.

        number : of the signal that asks for it.
        """
        self.signal_number = number
        if self._end.is_set():
            self._service.abort()
        self._end.set()

    async def _until_over(self) -> None:
        """Wait for a signal, the duration, or a long silence."""
        settings, began_s = self._settings, time.monotonic()
        while not self._end.is_set():
            ends_s = [began_s + settings.duration_s] if settings.duration_s is not None else []
            if settings.idle_s is not None:
                if self._service.fleet.num_open:
                    self._quiet_since_s = time.monotonic()
                ends_s.append(self._quiet_since_s + settings.idle_s)
            left_s = min(ends_s) - time.monotonic() if ends_s else None
            if left_s is not None and left_s <= 0:
                break
            try:
                await asyncio.wait_for(self._end.wait(), left_s)
            except TimeoutError:
                continue

    async def _let_end(self) -> None:
        """Let running requests end, for some simulated time."""
        service = self._service
        until_ns = service.clock.now_ns() + GRACE_NS
        while (service.fleet.num_open or any(self._server.num_open.values())) and not service.fleet.is_stopped:
            if service.clock.is_paused or service.clock.now_ns() > until_ns:
                break
            await asyncio.sleep(0.001)


async def _listening(handler, host: str, port: int, *more) -> tuple:
    """Return what `server.listen` does. Raises InputErrors: the port is not free, or the host is not here."""
    try:
        return await listen(handler, host, port, *more)
    except OSError as error:        # asyncio's own text repeats the address; names that are not found have codes < 0
        why = os.strerror(error.errno) if (error.errno or -1) > 0 else error.strerror
        raise InputErrors([f"port {port} at {host}: cannot listen there: {why}; --port, --replica-ports, --admin-port "
                           "and --host choose others, --port 0 any that is free"]) from None
