"""One drawn demand that agrees with all counts of the metrics.

Requests that come in a window = requests that end in it + growth of the requests in the instance: exact. Lengths are
drawn in the window in which requests end, where the histograms count them; the end, less the mean latency of a request
as long, places each in the order of arrivals.
"""
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simulator.study.reconstruct.densities import Density, densities_of
from simulator.study.reconstruct.lengths import drawn_lengths
from simulator.study.reconstruct.windows import Record, Window

BEFORE = 20                     # windows before a restart that give the rate until it


class Demand(NamedTuple):
    """Requests in order of arrival, seconds since 1970."""

    arrival_s: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray


class Outage(NamedTuple):
    """A restart of an instance. stop_s, back_s : instants, seconds since 1970."""

    instance: int
    stop_s: float
    back_s: float


def drawn_outages(generator: np.random.Generator, records: Sequence[Record]) -> list[Outage]:
    """Return the restarts of all instances, at instants drawn within bounds."""
    found = []
    for i, record in enumerate(records):
        for window in record.windows:
            if window.has_restart:
                found.append(_outage(generator, i, record, window))
    return sorted(found, key=lambda each: each.stop_s)


def _outage(generator: np.random.Generator, i: int, record: Record, window: Window) -> Outage:
    """Return a restart: it stops within a step of the last scrape, and is back near the next one.

    Values are up to a step older than their times, by another lag for each instance: so half a step is added.
    """
    span_s = window.end_s - window.begin_s
    step_s = min(record.step_s, span_s / 2)
    stop_s = window.begin_s + step_s * generator.random()
    back_s = window.end_s + step_s * (1.5 * generator.random() - 1.0)
    return Outage(i, stop_s, max(back_s, stop_s + 0.001))


def drawn_demand(generator: np.random.Generator, records: Sequence[Record], burstiness: float,
                 outages: Sequence[Outage]) -> Demand:
    """Return a demand.

    burstiness : coefficient of variation of the gaps between arrivals within a window; 1: a Poisson process.
    outages : as `drawn_outages` returns them.
    """
    due_s, prompts, outputs = _ended(generator, records)
    unseen = _unseen(generator, records, outages)
    arrivals_s = _arrivals(generator, records, burstiness, unseen)
    num_present = sum(record.present for record in records)
    inside = sum(record.left for record in records)
    pool = (prompts, outputs) if len(prompts) else (np.array([1]), np.array([1]))
    if inside:
        chosen = _long_ones(generator, pool[1], inside)
        last_s = max(record.windows[-1].end_s for record in records)
        latency_s = _latencies(records[0].windows[-1], pool[1][chosen])
        due_s = np.r_[due_s, last_s - generator.random(inside) * latency_s]
        prompts, outputs = np.r_[prompts, pool[0][chosen]], np.r_[outputs, pool[1][chosen]]
    order = _resized(generator, np.argsort(due_s, kind="stable"), len(arrivals_s) + num_present)
    first_s = min(record.windows[0].begin_s for record in records)
    early_s = np.minimum(np.sort(due_s)[:num_present], first_s - 1e-3)
    early_s = np.r_[early_s, np.full(num_present - len(early_s), first_s - 1e-3)]
    return Demand(np.r_[early_s, arrivals_s], prompts[order], outputs[order])


def _ended(generator: np.random.Generator, records: Sequence[Record]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return estimated arrival, prompt and output of the requests that ended in the windows."""
    due_s, prompts, outputs = [np.zeros(0)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    densities = [_chosen(generator, densities_of([getattr(window, name) for record in records
                                                  for window in record.windows])) for name in ("prompts", "outputs")]
    for record in records:
        for window in record.windows:
            if not window.ended:
                continue
            prompts.append(drawn_lengths(generator, window.prompts, window.ended, densities[0]))
            outputs.append(drawn_lengths(generator, window.outputs, window.ended, densities[1]))
            ends_s = generator.uniform(window.begin_s, window.end_s, window.ended)
            due_s.append(ends_s - _latencies(window, outputs[-1]))
    return np.concatenate(due_s), np.concatenate(prompts), np.concatenate(outputs)


def _chosen(generator: np.random.Generator, densities: list[Density]) -> Density | None:
    return densities[generator.integers(len(densities))] if densities else None


def _latencies(window: Window, outputs: np.ndarray) -> np.ndarray:
    return window.ttft_s + np.maximum(outputs - 1, 0) * window.itl_s


def _long_ones(generator: np.random.Generator, outputs: np.ndarray, count: int) -> np.ndarray:
    """Return rows of requests in flight: a longer request is in flight for longer."""
    return generator.choice(len(outputs), count, p=outputs / outputs.sum())


def _resized(generator: np.random.Generator, order: np.ndarray, size: int) -> np.ndarray:
    """Return `size` rows, in order: some left out, or some twice."""
    while len(order) < size and len(order):
        extra = generator.choice(len(order), min(size - len(order), len(order)), replace=False)
        order = np.repeat(order, 1 + np.bincount(extra, minlength=len(order)))
    if len(order) > size:
        order = order[np.sort(generator.choice(len(order), size, replace=False))]
    return order


def _unseen(generator: np.random.Generator, records: Sequence[Record],
            outages: Sequence[Outage]) -> dict[tuple[int, float], int]:
    """Return by instance and begin of a window how many more arrivals it has than were counted.

    Requests between the last scrape and a stop are in no counter; those in the instance when it stopped are sent
    again, as [[failures]] does, and would be counted twice.
    """
    added = {}
    for outage in outages:
        record = records[outage.instance]
        window = next(each for each in record.windows if each.begin_s <= outage.stop_s <= each.end_s
                      and each.has_restart)
        before = [each for each in record.windows if each.end_s <= window.begin_s and not each.has_restart][-BEFORE:]
        span_s = sum(each.end_s - each.begin_s for each in before)
        ended = sum(each.ended for each in before) / span_s if span_s else 0.0
        added[outage.instance, window.begin_s] = int(
            generator.poisson(ended * (outage.stop_s - window.begin_s))) - window.lost
    return added


def _arrivals(generator: np.random.Generator, records: Sequence[Record], burstiness: float,
              unseen: dict[tuple[int, float], int]) -> np.ndarray:
    """Return ascending instants, as many in each window as came in it."""
    counts: dict[tuple[float, float], int] = defaultdict(int)
    for i, record in enumerate(records):
        owed = 0                        # requests sent again that the window itself does not hold
        for window in record.windows:
            count = window.arrived + unseen.get((i, window.begin_s), 0) + owed
            owed = min(count, 0)
            counts[window.begin_s, window.end_s] += max(count, 0)
    parts = [spread(generator, begin_s, end_s, count, burstiness) for (begin_s, end_s), count in sorted(counts.items())]
    return np.sort(np.concatenate(parts))


def spread(generator: np.random.Generator, begin_s: float, end_s: float, count: int, burstiness: float) -> np.ndarray:
    """Return instants in a window, as many as given, with gamma gaps."""
    shape = burstiness ** -2.0
    gaps = np.maximum(generator.gamma(shape, 1 / shape, count + 1), 1e-12)
    return begin_s + (end_s - begin_s) * np.cumsum(gaps)[:count] / gaps.sum()
