"""Wall-clock time, and waiting to a fraction of a millisecond."""
import asyncio
import time
from collections.abc import Callable

# An event loop sleeps in whole milliseconds (Python's selectors.EpollSelector.select rounds up): the last is polled.
SPIN_NS = 1_200_000


class Clock:
    """Nanoseconds since an origin, of the monotonic clock; anchored once to UTC.

    origin_ns : `time.perf_counter_ns()` at 0; processes of one machine share it.
    """

    def __init__(self, origin_ns: int | None = None):
        before_ns, utc_ns, after_ns = time.perf_counter_ns(), time.time_ns(), time.perf_counter_ns()
        self.origin_ns = after_ns if origin_ns is None else origin_ns
        self.utc_ns = utc_ns + self.origin_ns - (before_ns + after_ns) // 2
        """UTC at 0, in ns since 1970."""

    def now_ns(self) -> int:
        """Return the time."""
        return time.perf_counter_ns() - self.origin_ns

    async def wait_until(self, due_ns: int, changed: asyncio.Event, still: Callable[[], bool]) -> bool:
        """Wait for an instant; return whether it was reached.

        changed : set when something else may be due earlier; False is returned then, if `still` returns False.
        """
        while (left_ns := due_ns - self.now_ns()) > 0:
            if left_ns > SPIN_NS:
                await sleep_or(changed, (left_ns - SPIN_NS) / 1e9)
            else:
                await asyncio.sleep(0)
            if changed.is_set():
                changed.clear()
                if not still():
                    return False
        return True


async def sleep_or(changed: asyncio.Event, seconds: float | None) -> None:
    """Sleep until an event is set, or for some seconds; None: without limit."""
    if seconds is None:
        await changed.wait()
        return
    loop = asyncio.get_running_loop()
    handle = loop.call_later(seconds, changed.set)
    try:
        await changed.wait()
    finally:
        handle.cancel()
