"""Intervals of fitted values by the bootstrap, and keys that the data do not identify.

Blocks are redrawn, 50 iterations or 10 s of requests, 200 times; the 2.5th and 97.5th percentile of the fitted values
bound the interval. Each draw would take a new search for fits to requests: instead each draw takes
one step of Gauss and Newton from the fitted values, with the change of each request's times per key. A key
with an interval that holds 0, or reaches both of its bounds, is not identified by this load.
"""
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from simulator.core.random_streams import RandomStreams
from simulator.study.calibration.blocks import moving_rows, moving_spans
from simulator.study.calibration.calibrate_table import FitKey
from simulator.study.calibration.data import METRICS
from simulator.study.calibration.newton import step
from simulator.study.calibration.objective import quantile_residuals
from simulator.study.calibration.steps import Problem, solved

DRAWS, BLOCK_STEPS = 200, 50
TAILS = (2.5, 97.5)
AT_BOUND_FRAC = 1e-6                            # of the range

# Loads that distinguish a key from the others, by the end of its name.
LOADS = {
    "base_us": "few sequences at a time: a low rate, and long outputs",
    "per_sequence_us": "iterations with one and with many sequences: rates from low to near the largest",
    "per_prefill_token_us": "prompts of many lengths, one at a time: a low rate",
    "per_decode_token_us": "more than one token of a sequence in an iteration (drafts); without, decode tokens are "
                           "sequences but for those that compute prompts",
    "per_context_token_us": "short and very long contexts with equally many sequences",
    "iteration_us": "iterations one after the other without a pause: several requests at any time",
    "queue_base_us": "short prompts at a low rate, so that TTFT is little else",
    "queue_per_prompt_token_us": "prompts of many lengths at a low rate, beside a fit of iterations",
    "output_token_us": "single requests with long outputs, beside a fit of iterations",
    "completion_us": "many requests of one token",
    "sequence_us": "iterations with one and with many sequences",
    "bandwidth_efficiency": "decodes alone: short prompts, long outputs",
    "memory_efficiency": "decodes alone: short prompts, long outputs",
    "mfu_prefill": "long prompts, one token out: computing bounds them",
    "mfu_decode": "decodes of so many sequences that computing bounds them",
    "kernel_latency_us": "one short request at a time",
}
ANY_LOAD = "a load under which it is a larger part of the time"


class Interval(NamedTuple):
    """The interval of a value.

    reason : why the data do not identify it, and a load that would; None: it is identified.
    """

    low: float
    high: float
    reason: str | None


def of_steps(problem: Problem, fit: Mapping[str, FitKey], seed: int) -> dict[str, Interval]:
    """Return the intervals of prices."""
    draw = RandomStreams(seed).generator("study.bootstrap")
    count = len(problem.duration_us)
    found = [solved(problem.rows(moving_rows(draw, count, BLOCK_STEPS))) for _ in range(DRAWS)]
    return intervals(np.array(found), fit, (problem.counts != 0.0).any(axis=0))


def of_gaps(gaps_us: np.ndarray, key: str, bounds: FitKey, seed: int) -> dict[str, Interval]:
    """Return the interval of a median gap."""
    draw = RandomStreams(seed).generator(f"study.bootstrap.{key}")
    known = gaps_us[np.isfinite(gaps_us)]
    found = [np.median(known[moving_rows(draw, len(known), BLOCK_STEPS)]) for _ in range(DRAWS)]
    return intervals(np.clip(np.array(found), bounds.min, bounds.max)[:, None], {key: bounds}, (True,))


class Sample(NamedTuple):
    """A data set of the fit.

    sent_s : float64 (n,), ascending. measured : metric -> float64 (n,). simulated : at the fitted values.
    nudged : for each key, as `simulated`, with that key moved by its part of `moves`.
    """

    sent_s: np.ndarray
    measured: Mapping[str, np.ndarray]
    simulated: Mapping[str, np.ndarray]
    nudged: tuple[Mapping[str, np.ndarray], ...]


def of_requests(samples: list[Sample], moves: np.ndarray, seen: list[bool], values: Mapping[str, float],
                fit: Mapping[str, FitKey], seed: int) -> dict[str, Interval]:
    """Return the intervals of values fitted to requests.

    moves : float64 (k,), distance by which each key was moved. seen : of each key, whether its move changed any time.
    """
    draw = RandomStreams(seed).generator("study.bootstrap.requests")
    found = [_step([_drawn(sample, moving_spans(draw, sample.sent_s)) for sample in samples], values, fit, moves)
             for _ in range(DRAWS)]
    return intervals(np.array(found), fit, seen)


def intervals(found: np.ndarray, fit: Mapping[str, FitKey], seen: Iterable[bool]) -> dict[str, Interval]:
    """Return the intervals of redrawn values.

    Parameters
    ----------
    found : float64 (draws, k). seen : of each key, whether any time depends on it; else its interval is its range.
    """
    lows, highs = np.percentile(found, TAILS, axis=0).tolist()
    return {key: Interval(low, high, _why_not(key, low, high, bounds)) if is_seen
            else Interval(bounds.min, bounds.max, f"nothing that was measured depends on it; {_load_for(key)}")
            for (key, bounds), low, high, is_seen in zip(fit.items(), lows, highs, seen, strict=True)}


def _load_for(key: str) -> str:
    return f"what would tell it: {LOADS.get(key.rpartition('.')[2], ANY_LOAD)}"


def _why_not(key: str, low: float, high: float, bounds: FitKey) -> str | None:
    margin = AT_BOUND_FRAC * (bounds.max - bounds.min)
    if low <= 0.0 <= high:
        return f"its interval holds 0; {_load_for(key)}"
    if low <= bounds.min + margin and high >= bounds.max - margin:
        return f"its interval reaches both bounds; {_load_for(key)}"
    return None


def _drawn(sample: Sample, rows: np.ndarray) -> Sample:
    def part(times: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: times[name][rows] for name in METRICS}
    return Sample(sample.sent_s[rows], part(sample.measured), part(sample.simulated), tuple(map(part, sample.nudged)))


def _step(samples: list[Sample], values: Mapping[str, float], fit: Mapping[str, FitKey],
          moves: np.ndarray) -> list[float]:
    """Return the values after one step towards the least objective of the redrawn samples."""
    now = _linear(samples, lambda sample: sample.simulated)
    slopes = [(_linear(samples, lambda sample, i=i: sample.nudged[i]) - now) / move for i, move in enumerate(moves)]
    return list(step(now, np.column_stack(slopes), values, fit).values())


def _linear(samples: list[Sample], of: Callable[[Sample], Mapping[str, np.ndarray]]) -> np.ndarray:
    parts = [quantile_residuals({name: (sample.measured[name], of(sample)[name]) for name in METRICS})
             for sample in samples]
    return np.concatenate(parts) / np.sqrt(len(parts))
