"""Longer runs, and more seeds, until the numbers are as precise as requested.

While a half-width is above precision x |mean|, or a percentile is thin, or a run too short to have settled: twice
the requests, up to `max_requests`; then twice the seeds, up to 32. A longer workload begins with the shorter one.
"""
from collections.abc import Mapping

from simulator.study.statistics.intervals import of_replications
from simulator.study.sweep.identity import id_of
from simulator.study.sweep.study_file import MOST_SEEDS, Study
from simulator.study.sweep.trial import DONE, Finished, Trial


def more_of(study: Study, planned: list[Trial], finished: Mapping[str, Finished]) -> list[Trial]:
    """Return the runs that are still missing for the requested precision.

    Empty: none are missing, or no more are allowed.
    """
    if not study.settings.statistics.precision:
        return []
    by_point: dict[int, list[Trial]] = {}
    for trial in planned:
        by_point.setdefault(trial.point, []).append(trial)
    found, index = [], len(planned)
    for point, trials in by_point.items():
        current = current_of(trials)
        ends = [finished[trial.id] for trial in current if trial.id in finished]
        if len(ends) < len(current) or any(end.status != DONE for end in ends) or is_sure(study, ends):
            continue
        for trial in _longer(study, current) or _more_seeds(study, current):
            found.append(trial._replace(index=index + len(found), point=point))
    return found


def current_of(trials: list[Trial]) -> list[Trial]:
    """Return the runs of a point that count: the longest of each replication."""
    longest: dict[int, Trial] = {}
    for trial in trials:
        known = longest.get(trial.replication)
        if known is None or (trial.num_requests or 0) > (known.num_requests or 0):
            longest[trial.replication] = trial
    most = max(trial.num_requests or 0 for trial in longest.values())
    return [trial for trial in longest.values() if (trial.num_requests or 0) == most]


def is_sure(study: Study, ends: list[Finished]) -> bool:
    """Return whether the runs of a point give all metrics precisely enough.

    Runs with a growing queue can never give it, and count as precise.
    """
    rules = study.settings.statistics
    if any(end.extra["backlog"] == "growing" for end in ends):
        return True                             # no length is enough
    if any(end.extra["too_short"] or end.extra["thin"] for end in ends):
        return False
    for metric in rules.metrics:
        values = [end.summary.get(metric) for end in ends]
        if None in values:
            continue
        mean, half = of_replications(values, rules.confidence)
        if len(ends) == 1:
            half = ends[0].extra["interval"].get(metric)
            if half is None:
                return False
        if half > rules.precision * abs(mean):
            return False
    return True


def _longer(study: Study, current: list[Trial]) -> list[Trial]:
    """Return the runs with twice the requests; empty: at the maximum, or at the length of the trace."""
    if not study.is_drawn:
        return []
    asked = current[0].num_requests
    if asked is None:
        asked = study.experiment_of(current[0].assignment).workload.parameters.num_requests
    most = study.settings.statistics.max_requests
    if not asked or asked >= most:
        return []
    return [_with(study, trial, num_requests=min(2 * asked, most)) for trial in current]


def _more_seeds(study: Study, current: list[Trial]) -> list[Trial]:
    count = min(2 * len(current), MOST_SEEDS)
    last = max(current, key=lambda trial: trial.replication)
    seeds = [trial.seed for trial in current]
    return [_with(study, last, replication=last.replication + 1 + i, seed=max(seeds) + 1 + i)
            for i in range(count - len(current))]


def _with(study: Study, trial: Trial, **changed) -> Trial:
    made = trial._replace(**changed)
    more = {} if made.num_requests is None else {"workload.num_requests": made.num_requests}
    return made._replace(id=id_of(study.experiment_of(made.assignment | more, made.seed)))
