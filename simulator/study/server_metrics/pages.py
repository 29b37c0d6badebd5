"""Pages of metrics: Prometheus' text format, and the JSON in which `observe` keeps pages.

A text page without times is as old as the number of seconds in its name says, else as its file.
"""
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

import numpy as np

from simulator.study.measured.source import Source
from simulator.study.server_metrics.names import is_known, plain_name
from simulator.study.server_metrics.series import Series
from simulator.study.server_metrics.text_format import LABEL, by_time

EPOCH = re.compile(r"\d{9,10}(?:\.\d+)?")
Page = tuple[float, Mapping[str, float | str]]      # time in seconds; samples, as `samples_of` returns them


def read(source: Source) -> list[Series]:
    """Return the series of a text page; lines may have times, in milliseconds."""
    pages = by_time(source.data.decode()).items()
    return series_of_pages(((int(time_ms) / 1000 if time_ms else _time_of(Path(source.path)), samples)
                            for time_ms, samples in pages), source.path)


def series_of_pages(pages: Iterable[Page], source: str) -> list[Series]:
    """Return the series of pages.

    source : their place in messages.
    """
    found: dict[str, dict[float, float]] = {}
    for time_s, samples in pages:
        for key, value in samples.items():
            if isinstance(value, (int, float)):
                found.setdefault(key, {})[time_s] = float(value)
    made = []
    for key, values in found.items():
        metric, _, labels = key.partition("{")
        if is_known(name := plain_name(metric)):
            table = np.array(sorted(values.items()))
            made.append(Series(name, dict(LABEL.findall(labels)), table[:, 0], table[:, 1], source))
    return made


def is_kept(content: Mapping) -> bool:
    """Return whether an object is a page, or server.json, as `observe` writes them."""
    return "samples" in content or "began_at" in content


def kept_pages(source: Source, place: str, content: Mapping) -> Iterator[Page]:
    """Yield the pages of an object that `observe` wrote; faults go to the source."""
    try:
        if "samples" in content:
            yield float(content["time_s"]), dict(content["samples"])
            return
        began_s = datetime.fromisoformat(content["began_at"]).timestamp()
        for name, time_s in (("before", began_s), ("after", began_s + content["summary"]["duration_s"])):
            yield time_s, dict(content["metrics"][name])
    except (ValueError, KeyError, TypeError) as error:
        source.wrong(place or "page", f"expected a page of `observe`; found {type(error).__name__}: {error}")


def _time_of(path: Path) -> float:
    named = EPOCH.search(path.name)
    return float(named[0]) if named else path.stat().st_mtime
