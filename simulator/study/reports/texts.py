"""Numbers, names and answers in the form that reports of studies use."""
import math
from collections.abc import Iterable
from typing import Any

from simulator.results.figures.chart import number
from simulator.study.statistics.intervals import Estimate

LABELS = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "itl_ms": "ITL", "e2el_ms": "E2EL", "queue_ms": "queue"}
NAMES = {"request_throughput": "requests/s", "output_throughput": "output tokens/s",
         "total_token_throughput": "tokens/s", "request_goodput": "goodput, requests/s",
         "output_throughput_per_gpu": "output tokens/s per GPU", "tokens_per_s_per_user": "tokens/s per user"}
LESS = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms", "queue_ms", "cost", "energy", "preemptions")
MORE = ("request_throughput", "output_throughput", "total_token_throughput", "request_goodput", "goodput_share",
        "tokens_per_s")


def label_of(key: str) -> str:
    """Return the label of a key of summary.json: "TTFT p99, ms"."""
    head, _, last = key.rpartition(".")
    return f"{LABELS[head]} {last}, ms" if head in LABELS else NAMES.get(key, key)


def is_better_less(key: str) -> bool | None:
    """Return whether less of a number is better; None: not defined."""
    if key.startswith(MORE):
        return False
    return True if key.startswith(LESS) else None


def estimate(mean: float | None, half_width: float | None) -> str:
    """Return a number with its interval, as text."""
    if mean is None or math.isnan(mean):
        return "-"
    text = figure(mean)
    return text if half_width is None or math.isnan(half_width) else f"{text} ± {figure(half_width)}"


def figure(value: float | None) -> str:
    """Return a number with its sign."""
    return "-" if value is None or math.isnan(value) else f"-{number(-value)}" if value < 0 else number(value)


def difference(found: Estimate) -> str:
    """Return a difference with its interval, and a star where it does not hold 0."""
    if math.isnan(found.mean):
        return "-"
    sign = "+" if found.mean > 0 else ""
    star = " *" if abs(found.mean) > found.half_width else ""
    return f"{sign}{estimate(*found)}{star}"


def percent(value: float, by: float) -> str:
    """Return a difference relative to its base."""
    return "-" if not by or math.isnan(value) or math.isnan(by) else f"{value / abs(by):+.1%}"


def plain(value: Any) -> str:
    """Return a value of an axis."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,.6g}" if isinstance(value, float) else str(value)


def short_keys(keys: Iterable[str]) -> dict[str, str]:
    """Return the last part of each key, where no other key has the same one."""
    keys = list(keys)
    ends = [key.rpartition(".")[2] for key in keys]
    return {key: end if ends.count(end) == 1 else key for key, end in zip(keys, ends, strict=True)}


def words(assignment: dict[str, Any], short: dict[str, str]) -> str:
    """Return an assignment: "rate_per_s 4, max_num_seqs 16"."""
    return ", ".join(f"{short.get(key, key)} {plain(value)}" for key, value in assignment.items())
