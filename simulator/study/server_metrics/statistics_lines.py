"""Lines that vLLM logs, as series: statistics every ten seconds, the size of the KV cache, prefix caching.

Source: vLLM 0.33.0, v1/metrics/loggers.py, `LoggingStatLogger.log`: throughputs since the line before, the state at
the line, the hit rate of the latest requests; v1/core/kv_cache_utils.py.
"""
import re
from datetime import UTC, datetime
from itertools import compress

import numpy as np

from simulator.errors import InputErrors
from simulator.study.measured.source import Source
from simulator.study.server_metrics.names import CONFIG, HIT_RATE
from simulator.study.server_metrics.series import Series

LINE = re.compile(
    r"(?P<month>0[1-9]|1[0-2])-(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d).*?(?:Engine (?P<engine>\d+): )?"
    r"Avg prompt throughput: (?P<prompt>\d+\.?\d*) tokens/s, "
    r"Avg generation throughput: (?P<output>\d+\.?\d*) tokens/s, "
    r"Running: (?P<running>\d+) reqs,(?: Swapped: \d+ reqs,)? (?:Waiting|Pending): (?P<waiting>\d+) reqs"
    r"(?:.*?KV cache usage: (?P<usage>\d+\.?\d*)%)?(?:.*?Prefix cache hit rate: (?:GPU: )?(?P<hits>\d+\.?\d*)%)?")
SIZE = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
MODE = re.compile(r"enable_prefix_caching=(True|False)")
YEAR = 2024             # lines have none
# The metric of a group and its factor; None: a rate of a counter.
KINDS = {"prompt": ("prompt_tokens_total", None), "output": ("generation_tokens_total", None),
         "running": ("num_requests_running", 1.0), "waiting": ("num_requests_waiting", 1.0),
         "usage": ("kv_cache_usage_perc", 0.01), "hits": (HIT_RATE, 0.01)}


def recognises(source: Source) -> bool:
    """Return whether a file has lines of statistics."""
    return b"Avg prompt throughput" in source.data


def read(source: Source, near_s: float | None = None) -> list[Series]:
    """Return the series of a log; throughputs are added up to counters.

    Lines have no year: a month after December is one of the next year.

    near_s : an instant of the first year, seconds since 1970. None: any year.

    Raises
    ------
    InputErrors
        Fewer than two lines of an engine.
    """
    text, engines = source.data.decode(), {}
    for found in LINE.finditer(text):
        engines.setdefault(found["engine"] or "0", []).append(found)
    if not engines or any(len(found) < 2 for found in engines.values()):
        raise InputErrors([f"{source.path}: expected two lines of statistics of each engine or more"])
    year = YEAR if near_s is None else datetime.fromtimestamp(near_s, UTC).year
    made = [each for engine, found in sorted(engines.items()) for each in _of_engine(source, engine, found, year)]
    return made + _configs(source, text, made[0].times_s[:1])


def _configs(source: Source, text: str, times_s: np.ndarray) -> list[Series]:
    """Return the lines on KV cache and prefix caching as their metric reports them: as labels."""
    modes = MODE.findall(text)
    flags = {"enable_prefix_caching": modes[-1]} if modes else {}
    sizes = [{"num_gpu_blocks": tokens.replace(",", ""), "block_size": "1"} for tokens in SIZE.findall(text)]
    return [Series(CONFIG, {"engine": str(number), **size, **flags}, times_s, np.ones(1), source.path)
            for number, size in enumerate(sizes or [{}] * bool(flags))]


def _of_engine(source: Source, engine: str, lines: list[re.Match], year: int) -> list[Series]:
    months = [int(line["month"]) for line in lines]
    years = year - np.cumsum(np.round(np.diff(months, prepend=months[0]) / 12))     # New Year: from 12 to 1
    times_s = np.array([_time_s(line, int(its)) for line, its in zip(lines, years, strict=True)])
    is_later = np.r_[True, times_s[1:] > np.maximum.accumulate(times_s)[:-1]]
    lines, times_s = list(compress(lines, is_later)), times_s[is_later]
    steps_s = np.diff(times_s, prepend=times_s[0])
    if len(lines) > 1:
        steps_s = np.minimum(steps_s, 1.5 * np.median(steps_s[1:]))     # a gap: idle engines log nothing
    made = []
    for group, (name, unit) in KINDS.items():
        values = np.array([float(line[group] or "nan") for line in lines])
        values = np.cumsum(values * steps_s) if unit is None else values * unit
        if (known := ~np.isnan(values)).any():
            made.append(Series(name, {"engine": engine}, times_s[known], values[known], source.path))
    return made


def _time_s(line: re.Match, year: int) -> float:
    hours, minutes, seconds = map(int, line["clock"].split(":"))
    day_s = datetime(year, int(line["month"]), 1, tzinfo=UTC).timestamp() + 86400 * (int(line["day"]) - 1)
    return day_s + 3600 * hours + 60 * minutes + seconds
