"""Waking up at an instant, more closely than the timers of asyncio, which round to milliseconds."""
import asyncio
import ctypes
import os
import time
from collections.abc import Callable
from contextlib import suppress

CLOCK_MONOTONIC, TFD_TIMER_ABSTIME = 1, 1       # linux/time.h, linux/timerfd.h
FLAGS = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)     # TFD_NONBLOCK, TFD_CLOEXEC


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Alarm:
    """Calls a function at a time of the monotonic clock.

    By a timerfd where there is one, else by asyncio.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]):
        self._loop, self._ring, self._handle, self._file = loop, ring, None, -1
        with suppress(AttributeError, OSError):
            libc = ctypes.CDLL(None)
            self._settime, create = libc.timerfd_settime, libc.timerfd_create
            self._file = create(CLOCK_MONOTONIC, FLAGS)
        if self._file >= 0:
            loop.add_reader(self._file, self._read)

    def set(self, wall_ns: int | None) -> None:
        """Ring then, at once if that is past; only the last instant set counts.

        None: do not ring.
        """
        if self._file >= 0:
            value = _Timespec(*divmod(max(wall_ns, 1), 10**9)) if wall_ns is not None else _Timespec(0, 0)
            self._settime(self._file, TFD_TIMER_ABSTIME, ctypes.byref(_Itimerspec(_Timespec(0, 0), value)), None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None if wall_ns is None else self._loop.call_later(
            max(wall_ns - time.monotonic_ns(), 0) / 1e9, self._ring)

    def close(self) -> None:
        """Never ring again."""
        self.set(None)
        if self._file >= 0:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = -1

    def _read(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._file, 8)
        self._ring()
