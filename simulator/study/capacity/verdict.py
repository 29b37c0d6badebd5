"""Verdicts on values: runs with common seeds, until their intervals decide about the bounds."""
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from simulator.results.verdicts import LEAST_REQUESTS, TOO_SHORT
from simulator.study.capacity.bounds import BACKLOG, GOODPUT_SHARE, Bound, Bounds
from simulator.study.statistics.intervals import Estimate, of_replications, of_share
from simulator.study.statistics.student import t_quantile
from simulator.study.statistics.trend import GROWING, STABLE

PASS, FAIL, THIN = "pass", "fail", "thin"
KNOWN = 12                      # runs from which on their spread predicts that of more runs: t is within 8 % of 32's


class Observation(NamedTuple):
    """The observation of one run.

    values : by key of summary.json; None: there is nothing to measure.
    num_good, num_requests : requests that met every bound of [slo], and all injected and measured ones.
    num_sent : including requests that were cut as warm-up.
    backlog : from `statistics.trend`.
    faults : why the run fails whatever its values are: unfinished requests.
    thin : keys of percentiles of too few requests, which decide nothing. num_measured : number of measured requests.
    is_cut : the horizon ended the run before its requests.
    """

    seed: int
    values: dict[str, float | None]
    num_good: int = 0
    num_requests: int = 0
    num_sent: int = 0
    backlog: str = STABLE
    faults: tuple[str, ...] = ()
    thin: tuple[str, ...] = ()
    num_measured: int = 0
    is_cut: bool = False


Probe = Callable[[float, Sequence[int]], Sequence[Observation]]


class Rules(NamedTuple):
    """Rules of a verdict.

    seed : the first; run r of every value has seed + r, so that all serve the same requests.
    """

    bounds: Bounds
    seed: int = 0
    min_seeds: int = 3
    max_seeds: int = 32
    confidence: float = 0.95


class Verdict(NamedTuple):
    """The verdict of the runs with one value.

    is_undecided : an interval still holds the bound, and the mean has decided.
    reasons : why it fails, whatever its values are; empty: its values decided.
    estimates : mean and half-width, by key. margins : relative room to the bound, mean and half-width, by key.
    by_seed : the least margin of each seed.
    binding : key of the least margin, or "backlog" and the like.
    num_requests : of one run, the longest, with those cut as warm-up. sentence : why it fails; empty: it passes.
    thin : metrics of too few requests, because of which it neither passes nor fails; empty: it passes or fails.
    num_measured : measured requests of one run, the fewest. is_cut : the horizon ended some runs.
    """

    value: float
    passes: bool
    is_undecided: bool
    reasons: tuple[str, ...]
    estimates: dict[str, Estimate]
    margins: dict[str, Estimate]
    by_seed: dict[int, float]
    binding: str
    num_requests: int
    sentence: str
    thin: tuple[str, ...] = ()
    num_measured: int = 0
    is_cut: bool = False

    @property
    def is_thin(self) -> bool:
        """Whether it neither passes nor fails: too few requests."""
        return bool(self.thin)

    @property
    def margin(self) -> float:
        """The least margin; NaN where the values did not decide."""
        least = min((each.mean for each in self.margins.values()), default=math.nan)
        return math.nan if self.thin or (self.reasons and not least < 0) else least

    @property
    def miss_text(self) -> str:
        """Why it does not pass, as the end of a sentence."""
        if self.thin:
            return f"is {self.sentence}"
        return f"misses {self.sentence}" if self.margin < 0 else f"fails: {self.sentence}"

    @property
    def word(self) -> str:
        """The verdict in a word or two."""
        if self.thin:
            return THIN
        return (PASS if self.passes else FAIL) + (", undecided" if self.is_undecided else "")


def judge(value: float, probe: Probe, rules: Rules) -> Verdict:
    """Return the verdict on a value.

    Runs are doubled until intervals decide, or `max_seeds` is reached; from `KNOWN` runs on only if `max_seeds` runs,
    with the mean and the spread seen so far, would decide.
    """
    seen: list[Observation] = []
    needed = rules.min_seeds
    while True:
        seen += probe(value, range(rules.seed + len(seen), rules.seed + needed))
        verdict = weigh(value, seen, rules)
        if not verdict.is_undecided or needed >= rules.max_seeds or (
                needed >= KNOWN and not _would_decide(verdict.margins, needed, rules)):
            return verdict
        needed = min(2 * needed, rules.max_seeds)


def _would_decide(margins: dict[str, Estimate], count: int, rules: Rules) -> bool:
    """Return whether `max_seeds` runs would decide if `count` have not, if mean and spread stay as they are."""
    most, between = rules.max_seeds, 1 - (1 - rules.confidence) / 2
    share = (t_quantile(between, most - 1) / t_quantile(between, count - 1)) * math.sqrt(count / most)
    expected = {key: Estimate(each.mean, share * each.half_width) for key, each in margins.items()}
    return any(_decided(expected, (), rules))


def weigh(value: float, seen: Sequence[Observation], rules: Rules) -> Verdict:
    """Return the verdict of runs.

    Pass if all intervals hold, fail if one is beyond; the mean decides where neither is so.

    One run alone has no interval; where no more are allowed, it decides. A percentile of too few requests decides
    nothing: the value is thin, unless another bound is missed. So do too few requests of the backlog.
    """
    seen = [_with_backlog(each, rules.bounds) for each in seen]
    reasons: tuple[str, ...] = ()
    estimates: dict[str, Estimate] = {}
    margins: dict[str, Estimate] = {}
    least: dict[int, float] = {}
    for bound in rules.bounds.bounds:
        if bound.key == GOODPUT_SHARE:
            estimate, margin = _share(bound, seen, rules.confidence)
            own = [bound.margin(each.num_good / max(each.num_requests, 1)) for each in seen]
        else:
            values = [each.values.get(bound.key) for each in seen]
            if None in values:
                count = sum(not each.faults and each.values[bound.key] is None and bound.key not in each.thin
                            for each in seen)
                if count:
                    reasons += (f"{bound.key}: there is nothing to measure in {count} of {len(seen)} runs",)
                continue
            estimate = of_replications(values, rules.confidence)
            own = [bound.margin(each) for each in values]
            margin = of_replications(own, rules.confidence)
        for each, room in zip(seen, own, strict=True):
            least[each.seed] = min(room, least.get(each.seed, math.inf))
        if bound.key not in margins or margin.mean < margins[bound.key].mean:       # max and min of one key
            estimates[bound.key], margins[bound.key] = estimate, margin
    reasons += _reasons(seen, rules.bounds)
    thin = tuple(dict.fromkeys(key for each in seen for key in each.thin))
    holds, misses = _decided({key: each for key, each in margins.items() if key not in thin}, reasons, rules)
    thin = () if misses else thin
    passes = not (reasons or thin) and min(each.mean for each in margins.values()) >= 0
    reasons += _thin_reasons(thin, seen)
    binding, sentence = (thin[0], reasons[0]) if thin else _binding(rules.bounds, estimates, margins, reasons)
    return Verdict(value, passes, not (holds or misses or thin), reasons, estimates, margins, least, binding,
                   max(each.num_sent for each in seen), sentence, thin, min(each.num_measured for each in seen),
                   any(each.is_cut for each in seen))


def _with_backlog(observed: Observation, bounds: Bounds) -> Observation:
    """Return the observation of a run, with BACKLOG in `thin` if too few requests show its trend."""
    is_thin = bounds.wants_stable and observed.backlog == TOO_SHORT
    return observed._replace(thin=(*observed.thin, BACKLOG)) if is_thin else observed


def _thin_reasons(thin: tuple[str, ...], seen: Sequence[Observation]) -> tuple[str, ...]:
    counts = {key: sum(key in each.thin for each in seen) for key in thin}
    would_do = {BACKLOG: f", {LEAST_REQUESTS} would do"}
    return tuple(f"{THIN}: too few requests for {key}{would_do.get(key, '')}"
                 + f" ({count} of {len(seen)} runs)" * (count < len(seen)) for key, count in counts.items())


def _decided(margins: dict[str, Estimate], reasons: tuple[str, ...], rules: Rules) -> tuple[bool, bool]:
    """Return whether all intervals hold, and whether one is beyond."""
    if reasons:
        return False, True
    alone = rules.max_seeds == 1
    ends = [(each.mean, each.mean) if alone and math.isnan(each.half_width) else (each.low, each.high)
            for each in margins.values()]
    return all(low >= 0 for low, _ in ends), any(high < 0 for _, high in ends)


def _share(bound: Bound, seen: Sequence[Observation], confidence: float) -> tuple[Estimate, Estimate]:
    """Return the share of good requests of all runs together, and its margin, with Wilson's interval."""
    good, count = (sum(getattr(each, name) for each in seen) for name in ("num_good", "num_requests"))
    low, high = of_share(good, count, confidence)
    share = good / count if count else 0.0
    room = bound.margin(share)
    half = high - share if room < 0 else share - low        # of the side that decides
    return Estimate(share, half), Estimate(room, half / bound.limit)


def _reasons(seen: Sequence[Observation], bounds: Bounds) -> tuple[str, ...]:
    counts = Counter(fault for each in seen for fault in each.faults)
    reasons = [fault if count == len(seen) else f"{fault} ({count} of {len(seen)} runs)"
               for fault, count in counts.items()]
    count = sum(each.backlog == GROWING for each in seen)
    if bounds.wants_stable and 2 * count > len(seen):       # a trend shows by chance now and then
        reasons.append(f"{BACKLOG}: {GROWING} in {count} of {len(seen)} runs")
    return tuple(reasons)


def _binding(bounds: Bounds, estimates: dict[str, Estimate], margins: dict[str, Estimate],
             reasons: tuple[str, ...]) -> tuple[str, str]:
    """Return the binding key, and how it misses, or why the value fails; "" where it passes."""
    key = min(margins, key=lambda each: margins[each].mean, default="")
    if key and margins[key].mean < 0:
        bound = min((each for each in bounds.bounds if each.key == key),
                    key=lambda each: each.margin(estimates[key].mean))
        return key, bound.miss_text(estimates[key].mean)
    if reasons:
        return reasons[0].partition(":")[0], reasons[0]
    return key, ""
