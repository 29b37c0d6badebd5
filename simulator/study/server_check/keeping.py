"""Pages of a server's metrics, read at equal times and kept."""
import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

from simulator.study.observe.client import Client
from simulator.study.observe.clock import Clock
from simulator.study.observe.server_facts import metrics_of
from simulator.study.server_check.series import BY_METRIC, LENGTHS, ServerSeries, series_of
from simulator.study.server_metrics.names import CONFIG, plain_name
from simulator.study.server_metrics.pages import series_of_pages

READINGS_A_SECOND = 4           # looks whether to end


class Pages:
    """The pages of one server; each is a line of a file, too.

    path : of the file; None: none. failures : why pages are missing, by their time.
    """

    def __init__(self, path: Path | None = None):
        self.path, self.failures = path, {}
        self._pages: list[tuple[float, dict]] = []

    def add(self, time_s: float, page: dict[str, float] | str) -> None:
        """Keep the samples of a page that are compared; a text says why there is no page."""
        if isinstance(page, str):
            self.failures[time_s] = page
            return
        kept = {key: value for key, value in page.items() if _is_compared(key.partition("{")[0])}
        self._pages.append((time_s, kept))
        if self.path is not None:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps({"time_s": time_s, "samples": kept}) + "\n")

    def series(self) -> ServerSeries:
        """Return the series of all pages so far."""
        return series_of(series_of_pages(list(self._pages), str(self.path)))


def _is_compared(metric: str) -> bool:
    return plain_name(metric) in (*BY_METRIC, LENGTHS, CONFIG)


async def keep(pages: Pages, url: str, metrics_url: str | None, key: str | None, every_s: float,
               stops: Callable[[], bool]) -> None:
    """Read the page of metrics at equal times until `stops` is true."""
    async with Client(url, Clock(), key) as client:
        due_s = time.monotonic()
        while not stops():
            page = await metrics_of(client, metrics_url)
            pages.add(time.time(), page)
            due_s += every_s
            while not stops() and time.monotonic() < due_s:
                await asyncio.sleep(min(1 / READINGS_A_SECOND, max(due_s - time.monotonic(), 0.0)))


class Keeper:
    """Keeps pages in a thread, while something else runs; a context manager."""

    def __init__(self, pages: Pages, url: str, metrics_url: str | None, key: str | None, every_s: float):
        self._over = Event()
        self._thread = Thread(target=lambda: asyncio.run(
            keep(pages, url, metrics_url, key, every_s, self._over.is_set)), daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._over.set()
        self._thread.join()
