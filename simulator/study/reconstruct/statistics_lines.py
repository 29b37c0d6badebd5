"""Lines of statistics that vLLM logs every ten seconds, as series.

Source: vLLM 0.33.0, v1/metrics/loggers.py, `LoggingStatLogger.log`: throughputs since the line before, the state at
the line, the hit rate of the latest requests.
"""
import re
from datetime import UTC, datetime

import numpy as np

from simulator.errors import InputErrors
from simulator.study.measured.source import Source
from simulator.study.reconstruct.series import Series

LINE = re.compile(
    r"(?P<month>\d\d)-(?P<day>\d\d) (?P<clock>\d\d:\d\d:\d\d).*?(?:Engine (?P<engine>\d+): )?"
    r"Avg prompt throughput: (?P<prompt>[\d.]+) tokens/s, Avg generation throughput: (?P<output>[\d.]+) tokens/s, "
    r"Running: (?P<running>\d+) reqs,(?: Swapped: \d+ reqs,)? (?:Waiting|Pending): (?P<waiting>\d+) reqs"
    r"(?:, (?:GPU )?KV cache usage: (?P<usage>[\d.]+)%)?(?:.*?Prefix cache hit rate: (?:GPU: )?(?P<hits>[\d.]+)%)?")
YEAR = 2024             # lines have none; a leap year has all days
YEAR_S = 365.25 * 86400.0
KINDS = {"running": ("num_requests_running", 1.0), "waiting": ("num_requests_waiting", 1.0),
         "usage": ("kv_cache_usage_perc", 0.01), "hits": ("prefix_cache_hit_rate", 0.01)}
COUNTS = {"prompt": "prompt_tokens_total", "output": "generation_tokens_total"}


def recognises(source: Source) -> bool:
    """Return whether a file has lines of statistics."""
    return b"Avg prompt throughput" in source.data


def read(source: Source, near_s: float | None = None) -> list[Series]:
    """Return the series of a log; throughputs are added up to counters.

    near_s : an instant of its year, seconds since 1970; lines have no year. None: any year.

    Raises
    ------
    InputErrors
        Fewer than two lines of an engine.
    """
    engines: dict[str, list[re.Match]] = {}
    for line in source.data.decode("utf-8", "replace").splitlines():
        if found := LINE.search(line):
            engines.setdefault(found["engine"] or "0", []).append(found)
    if not engines or any(len(found) < 2 for found in engines.values()):
        raise InputErrors([f"{source.path}: expected two lines of statistics of each engine or more"])
    year = YEAR if near_s is None else datetime.fromtimestamp(near_s, UTC).year
    return [each for engine, found in sorted(engines.items()) for each in _of_engine(source, engine, found, year)]


def _of_engine(source: Source, engine: str, lines: list[re.Match], year: int) -> list[Series]:
    times_s = np.array([_time_s(line, year) for line in lines])
    times_s += YEAR_S * np.cumsum(np.r_[False, np.diff(times_s) < -YEAR_S / 2])     # New Year
    is_later = np.r_[True, np.diff(times_s) > 0]
    lines, times_s = [line for line, later in zip(lines, is_later, strict=True) if later], times_s[is_later]
    steps_s = np.diff(times_s, prepend=times_s[0])
    steps_s = np.minimum(steps_s, 1.5 * np.median(steps_s[1:]))         # a gap: idle engines log nothing
    labels = {"engine": engine}
    made = [Series(name, labels, times_s, np.cumsum(_numbers(lines, group) * steps_s), source.path)
            for group, name in COUNTS.items()]
    made += [Series(name, labels, times_s, _numbers(lines, group) * unit, source.path)
             for group, (name, unit) in KINDS.items() if lines[0][group] is not None]
    return made


def _numbers(lines: list[re.Match], group: str) -> np.ndarray:
    return np.array([float(line[group] or 0) for line in lines])


def _time_s(line: re.Match, year: int) -> float:
    hours, minutes, seconds = map(int, line["clock"].split(":"))
    day_s = datetime(year, int(line["month"]), 1, tzinfo=UTC).timestamp() + 86400 * (int(line["day"]) - 1)
    return day_s + 3600 * hours + 60 * minutes + seconds
