"""A whole search at one point: search, interval, runs with new seeds, and the cost of the answer."""
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from simulator.config.experiment import Experiment
from simulator.study.capacity import vidur
from simulator.study.capacity.bounds import GOODPUT_SHARE, Bounds
from simulator.study.capacity.interval import interval_of
from simulator.study.capacity.prober import Prober
from simulator.study.capacity.search import Found, Search, repeated
from simulator.study.capacity.thin import Thin, thin_of, thin_values
from simulator.study.capacity.varied import RATE_SCALE, Varied
from simulator.study.capacity.verdict import FAIL, PASS, THIN, Observation, Rules, Verdict, judge
from simulator.study.sweep.study_file import Study
from simulator.study.sweep.trial import DONE
from simulator.study.telling.screen import figure

REPEATED = 4                    # times the requests, of runs with new seeds
FIGURES = ("request_throughput", "request_goodput", "output_throughput")
UNSERVED = ("rejected", "dropped", "timed_out", "failed")
MS_PER_S = 1000.0


class Answer(NamedTuple):
    """The result of a search at one point.

    value : the answer; None: nothing passes. interval : of the capacity; None: not known.
    found : the search. verdicts, repeats : in the order in which they were reached; `repeats` with new seeds.
    is_repeated : the last repeat agrees; None: there was nothing to repeat, or with Vidur's search.
    curve : the numbers of each probed value, in ascending order. figures : throughput and cost of the answer.
    thin : why values could not be judged; None: all were judged. raised : [workload] num_requests, and that of the
        longest runs, where runs had to be longer; None: none had.
    """

    value: float | None
    interval: tuple[float, float] | None
    found: Found
    verdicts: list[Verdict]
    repeats: list[Verdict]
    is_repeated: bool | None
    curve: list[dict[str, Any]]
    figures: dict[str, Any]
    thin: Thin | None = None
    raised: tuple[int, int] | None = None

    @property
    def word(self) -> str:
        """The verdict: a value passes, none does, or none could be judged."""
        return PASS if self.value is not None else THIN if self.thin else FAIL


Tell = Callable[[Verdict], None]


def rules_of(study: Study, bounds: Bounds) -> Rules:
    """Return the rules of verdicts."""
    given = study.settings
    return Rules(bounds, study.base.seed, given.min_seeds, given.max_seeds, given.statistics.confidence)


def answer(prober: Prober, study: Study, varied: Varied, bounds: Bounds, start: float, tell: Tell) -> Answer:
    """Return the answer at one point.

    tell : callback, called with each verdict as it is reached.
    """
    rules = rules_of(study, bounds)

    def judged(value: float) -> Verdict:
        verdict = judge(value, prober, rules)
        tell(verdict)
        return verdict

    search = Search(judged, varied.span)
    found = search.run(start)
    verdicts = list(search.verdicts.values())
    value, is_repeated, checks, longer = found.answer, None, [], prober.longer(REPEATED)
    if value is not None:
        value, is_repeated, checks = repeated(value, _fresh(longer, rules, tell), varied.span)
    interval = None
    if found.good is not None and found.bad is not None:
        interval = interval_of(found.good, found.bad, varied.span, rules.confidence, verdicts)
    if interval is not None and value is not None:      # the answer passed: it has more runs, or was stepped inward
        interval = min(interval[0], value), max(interval[1], value)
    statistics = study.settings.statistics
    thin = thin_of(verdicts, statistics.min_tail, study.warmup, prober.num_requests and statistics.max_requests)
    return Answer(value, interval, found, verdicts, checks, is_repeated, curve_of(prober, verdicts, bounds),
                  figures_of(longer, value) if value is not None else {}, thin, prober.raised)


def answer_as_vidur(prober: Prober, study: Study, varied: Varied, bounds: Bounds, start: float, tell: Tell) -> Answer:
    """Return the answer of Vidur's search.

    One run a value, its delay in seconds against the bound.
    """
    verdicts: dict[float, Verdict] = {}
    rules = rules_of(study, bounds)._replace(bounds=bounds._replace(wants_stable=False), min_seeds=1, max_seeds=1)
    (bound,) = bounds.bounds

    def probe(rate: float, seeds) -> list[Observation]:
        return [each._replace(faults=(), thin=()) if each.values else each for each in prober(rate, seeds)]

    def delay_of(rate: float) -> float | None:
        if rate not in verdicts:
            verdicts[rate] = judge(rate, probe, rules)
            tell(verdicts[rate])
        known = verdicts[rate].estimates.get(bound.key)
        return None if known is None else known.mean / MS_PER_S

    value = vidur.search(start, delay_of, vidur.VidurRules(limit=bound.limit / MS_PER_S))
    seen = list(verdicts.values())
    fails = [each for each in seen if not each.passes and (value is None or each.value > value)]
    found = Found(verdicts.get(value), min(fails, key=lambda each: each.value, default=None), None,
                  not any(each.passes and value is not None and each.value > value for each in seen))
    return Answer(value, None, found, seen, [], None, curve_of(prober, seen, bounds),
                  figures_of(prober, value) if value is not None else {}, raised=prober.raised)


def start_of(study: Study, varied: Varied, estimate: Callable[[], float | None]) -> float:
    """Return the start value of a search.

    estimate : returns the requests a second that the experiment can serve.
    """
    given, span = study.settings.start, varied.span
    if isinstance(given, (int, float)):
        return span.within(given)
    if varied.key == RATE_SCALE:
        return span.within(1.0)                 # as the trace has it
    if varied.is_rate:
        return span.within(estimate() or varied.now or 1.0)
    offered = getattr(getattr(study.base.workload.parameters, "arrival", None), "parameters", None)
    offered = getattr(offered, "rate_per_s", None)
    if varied.key.endswith("replicas") and varied.now and offered and math.isfinite(offered):
        rate = estimate()
        return span.within(math.ceil(varied.now * offered / rate) if rate else varied.now)
    return span.within(varied.now if varied.now is not None else span.inner)


def curve_of(prober: Prober, verdicts: list[Verdict], bounds: Bounds) -> list[dict[str, Any]]:
    """Return the numbers of all probed values, in ascending order."""
    rows = []
    for verdict in sorted(verdicts, key=lambda each: each.value):
        row: dict[str, Any] = {"value": verdict.value, "verdict": verdict.word}
        row |= {key: _mean(prober, verdict.value, key) for key in FIGURES}
        for key in dict.fromkeys(each.key for each in bounds.bounds):
            estimate = verdict.estimates.get(key)
            row[key] = estimate and finite(estimate.mean)
            row[f"{key}.ci"] = estimate and finite(estimate.half_width)
        rows.append(row)
    return rows


def figures_of(prober: Prober, value: float) -> dict[str, Any]:
    """Return the figures of a value: GPUs, and throughput per GPU; None: not known."""
    gpus = next((end.extra["gpus"] for end in prober.ends.get(value, {}).values() if end.status == DONE), None)
    tokens, requests = _mean(prober, value, "output_throughput"), _mean(prober, value, "request_throughput")
    unserved = sum(_mean(prober, value, f"requests.{key}") or 0.0 for key in UNSERVED)
    injected = _mean(prober, value, "requests.injected") or 0.0
    return {"gpus": gpus, "requests_per_s": requests, "output_tokens_per_s": tokens,
            "tokens_per_s_per_gpu": tokens / gpus if tokens is not None and gpus else None,
            "unserved_share": unserved / injected if injected else 0.0}


def cost_per_hour(experiment: Experiment) -> float | None:
    """Return the price of all replicas, in the file's currency; None: not given.

    From `cost_per_hour` of the pools, else from [prices] of their accelerators.
    """
    total = sum(pool.cost_per_hour * (pool.topology.replicas if pool.replicas is None else pool.replicas)
                for pool in (*experiment.all_pools(), *experiment.encode_pools()))
    return total or None


def notes_of(asked: Answer, bounds: Bounds) -> list[str]:
    """Return notes on the answer for the reader, a sentence each."""
    notes, found = [], asked.found
    if not found.is_monotone:
        notes.append("not monotone: a value passed beyond one that fails" if found.before is None else
                     f"not monotone: {figure(found.before.answer)} passed beyond a value that fails, "
                     f"{figure(found.before_fail)}; it does not count")
    if found.is_noisy:
        notes.append("the noise is wider than rel_tol: both ends of the last bracket are undecided; more seeds or "
                     "requests would tell")
    if found.at_bound is not None and asked.value is not None:
        notes.append(f"the answer is the bound study.{found.at_bound}: no optimum")
    if asked.is_repeated is False:
        notes.append("not repeated with new seeds: it fails with them and longer runs, five steps inward, too")
    if asked.thin is not None and asked.value is not None:
        notes.append(f"thin: {thin_values(asked.thin)} could not be judged: {asked.thin.sentence}")
    if asked.raised is not None:
        notes.append("workload.num_requests = {:,} is raised to {:,}, for the bounds need as many (min_tail and "
                     "max_requests of study.statistics)".format(*asked.raised))
    unserved = asked.figures.get("unserved_share", 0.0)
    if unserved and not any(each.key == GOODPUT_SHARE for each in bounds.bounds):
        notes.append(f"{unserved:.2%} of the requests were not served; percentiles are those of the others: bound "
                     f"{GOODPUT_SHARE}, too")
    return notes


def finite(value: float) -> float | None:
    """Return a number for JSON; None: not finite."""
    return float(value) if math.isfinite(value) else None


def _fresh(prober: Prober, rules: Rules, tell: Tell) -> Callable[[float], Verdict]:
    """Return a judge with unused seeds, each for one value."""
    once = rules._replace(seed=rules.seed + rules.max_seeds, max_seeds=rules.min_seeds)

    def judged(value: float) -> Verdict:
        verdict = judge(value, prober, once)
        tell(verdict)
        return verdict

    return judged


def _mean(prober: Prober, value: float, key: str) -> float | None:
    found = [end.summary.get(key) for end in prober.ends.get(value, {}).values()]
    found = [each for each in found if each is not None]
    return float(np.mean(found)) if found else None
