"""Counts between two scrapes of an instance: requests that came and ended, tokens, lengths by bucket.

A counter that falls was reset: the server restarted, and its new value is counted from 0, as Prometheus' `increase`
does. Between the last scrape before it and the reset nothing is known; the rate before the restart fills this time.
"""
from typing import NamedTuple

import numpy as np

from simulator.errors import InputErrors
from simulator.study.server_metrics.instances import Instance
from simulator.study.server_metrics.names import COUNTERS, HISTOGRAMS, START

GAP = 1.5                       # of the median distance of scrapes: a longer one is a gap
ENDED, RUNNING, WAITING = "request_success_total", "num_requests_running", "num_requests_waiting"
FIRST = "time_to_first_token_seconds"
PROMPT, OUTPUT = "request_prompt_tokens", "request_generation_tokens"


class Lengths(NamedTuple):
    """Lengths of the requests that ended in a window.

    counts : requests by bucket; empty: no histogram. bounds : upper bounds of the buckets. total : tokens of all.
    """

    counts: np.ndarray
    bounds: np.ndarray
    total: float


class Window(NamedTuple):
    """The time between two scrapes of one instance.

    arrived : requests that came, or -1: not known. ended : requests that ended. prompts, outputs : their lengths.
    ttft_s, itl_s : mean time to the first token, and between tokens; 0: none were seen.
    lost : requests in the instance at the scrape before its restart; -1: no restart.
    """

    begin_s: float
    end_s: float
    arrived: int
    ended: int
    prompts: Lengths
    outputs: Lengths
    ttft_s: float
    itl_s: float
    lost: int

    @property
    def has_restart(self) -> bool:
        """Whether the server restarted in it."""
        return self.lost >= 0


class Record(NamedTuple):
    """The windows of an instance.

    step_s : median distance of scrapes. present : requests in it at the first scrape. left : at the last one.
    """

    name: str
    step_s: float
    windows: tuple[Window, ...]
    present: int
    left: int

    @property
    def gaps(self) -> list[Window]:
        """Windows longer than a scrape's distance, without restarts."""
        return [each for each in self.windows if each.end_s - each.begin_s > GAP * self.step_s and not each.has_restart]


def record_of(instance: Instance, has_log: bool) -> Record:
    """Return the windows of an instance.

    has_log : a log counts requests, so that metrics need not.

    Raises
    ------
    InputErrors
        Fewer than three scrapes; no counts of requests, without a log.
    """
    values = instance.values
    needed = [name for name in (ENDED, RUNNING, WAITING) if name not in values]
    faults = [] if has_log or not needed else [
        f"--metrics: {instance.name}: no series {', '.join(needed)}, which count requests; add them, or give --log"]
    present = np.zeros(len(instance.times_s), bool)
    for name in (ENDED, RUNNING):
        present |= ~np.isnan(values.get(name, np.nan))
    if np.count_nonzero(present) < 3:
        faults.append(f"--metrics: {instance.name}: expected three scrapes or more, found {np.count_nonzero(present)}")
    if faults:
        raise InputErrors(faults)
    kept = instance._replace(
        times_s=instance.times_s[present], values={name: each[present] for name, each in values.items()},
        buckets={name: (bounds, counts[present]) for name, (bounds, counts) in instance.buckets.items()})
    return _record(kept)


def resets_of(instance: Instance) -> np.ndarray:
    """Return whether each window holds a restart, bool (t - 1,)."""
    found = np.zeros(len(instance.times_s) - 1, bool)
    names = (*COUNTERS, *(f"{name}_count" for name in HISTOGRAMS))
    for name in names:
        if name in instance.values:
            found |= np.diff(instance.values[name]) < 0
    if START in instance.values:
        found |= np.diff(instance.values[START]) > 1.0
    return found


def increases(values: np.ndarray, resets: np.ndarray) -> np.ndarray:
    """Return by how much a counter grew in each window, from 0 behind a reset."""
    after = values[1:]
    grown = after - np.where(resets[:, None] if values.ndim > 1 else resets, 0.0, values[:-1])
    return np.maximum(np.nan_to_num(grown), 0.0)


def _record(instance: Instance) -> Record:
    times_s, values, resets = instance.times_s, instance.values, resets_of(instance)

    def grown(name: str) -> np.ndarray:
        return increases(values[name], resets) if name in values else np.zeros(len(resets))

    inside = np.nan_to_num(values.get(RUNNING, np.zeros(len(times_s)))) + np.nan_to_num(
        values.get(WAITING, np.zeros(len(times_s))))
    ended = grown(ENDED)
    arrived = np.full(len(resets), -1.0)
    if ENDED in values:
        arrived = np.maximum(ended + inside[1:] - np.where(resets, 0.0, inside[:-1]), 0.0)
    prompts, outputs = (_lengths(instance, name, resets, fallback, ended) for name, fallback in (
        (PROMPT, "prompt_tokens_total"), (OUTPUT, "generation_tokens_total")))
    ttft_s, itl_s = (_means(grown(f"{name}_sum"), grown(f"{name}_count")) for name in (
        FIRST, "inter_token_latency_seconds"))
    step_s = float(np.median(np.diff(times_s)))
    return Record(instance.name, step_s, tuple(
        Window(float(times_s[i]), float(times_s[i + 1]), round(arrived[i]), round(ended[i]), prompts[i], outputs[i],
               float(ttft_s[i]), float(itl_s[i]), round(inside[i]) if resets[i] else -1)
        for i in range(len(resets))), round(inside[0]), round(inside[-1]))


def _lengths(instance: Instance, name: str, resets: np.ndarray, fallback: str, ended: np.ndarray) -> list[Lengths]:
    nothing = np.zeros(0)
    values = instance.values
    total = next((increases(values[each], resets) for each in (f"{name}_sum", fallback) if each in values),
                 np.zeros(len(resets)))
    if name not in instance.buckets:
        return [Lengths(nothing, nothing, float(each)) for each in total]
    bounds, cumulative = instance.buckets[name]
    counts = np.diff(increases(cumulative, resets), axis=1, prepend=0.0).clip(0)
    return [Lengths(np.round(row).astype(np.int64), bounds, float(each))
            for row, each in zip(counts, total, strict=True)]


def _means(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.where(counts > 0, sums / np.maximum(counts, 1), 0.0)
