"""The runs of a sweep as arrays: points by replications."""
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from simulator.errors import InputErrors
from simulator.study.reports.kinds import toml_of
from simulator.study.statistics.intervals import Estimate, of_replications
from simulator.study.sweep import plan
from simulator.study.sweep.design import flattened
from simulator.study.sweep.identity import canonical
from simulator.study.sweep.lengthening import current_of
from simulator.study.sweep.merge import points_table
from simulator.study.sweep.names import STUDY
from simulator.study.sweep.segments import checked, read_all
from simulator.study.sweep.study_file import Statistics
from simulator.study.sweep.trial import DONE, Finished, Trial

GROWING = "growing"


class Runs:
    """The runs in the directory of a sweep, also while it is running.

    asked : the study, as in its file. planned : all runs. finished : runs that have ended, by id.
    differing : ids of runs with two different results.
    points : numbers of the points, rising; rows of all arrays below.
    assignments : of the points, one key for each inner key. seeds : of the replications.
    rules : metrics and confidence. baseline : number of the point that others are paired with; None: no pairs.

    Raises
    ------
    InputErrors
        Files are missing, or damaged.
    """

    def __init__(self, directory: Path):
        self.directory = directory
        self.asked = toml_of(directory / STUDY)
        if "study" not in self.asked:
            raise InputErrors([f"{directory}: no study: there is no {STUDY}"])
        self.name = str(self.asked.get("name", directory.name))
        self.planned = [*plan.read(directory / plan.NAME), *plan.added(directory)]
        stored = checked(read_all(directory))
        self.finished: Mapping[str, Finished] = stored.finished
        self.differing = stored.differing
        settings = self.asked["study"]
        self.rules = Statistics(**{key: settings["statistics"][key] for key in ("confidence", "min_tail")},
                                metrics=tuple(settings["statistics"]["metrics"]))
        self.baseline = settings.get("run", {}).get("baseline")
        by_point: dict[int, list[Trial]] = {}
        for trial in self.planned:
            by_point.setdefault(trial.point, []).append(trial)
        self._current = {point: current_of(trials) for point, trials in sorted(by_point.items())}
        self.points = list(self._current)
        self.assignments = [flattened(trials[0].assignment) for trials in self._current.values()]
        self.num_replications = 1 + max((trial.replication for trial in self.planned), default=0)
        self._axes: dict[str, list[Any]] = {}
        self._values: dict[str, np.ndarray] = {}
        self.seeds = {trial.replication: trial.seed for trial in self.planned}

    @cached_property
    def table(self) -> np.ndarray:
        """/points, as table.h5 has it."""
        return points_table(self.rules, self.baseline, self.planned, self.finished)

    @cached_property
    def ends(self) -> list[dict[int, Finished]]:
        """Of each point, the runs that are done, by replication."""
        return [{trial.replication: end for trial in trials
                 if (end := self.finished.get(trial.id)) is not None and end.status == DONE}
                for trials in self._current.values()]

    @cached_property
    def grows(self) -> np.ndarray:
        """Mask of points without a steady state: the queue of a run grows."""
        return np.array([any(end.extra.get("backlog") == GROWING for end in ends.values()) for ends in self.ends], bool)

    @cached_property
    def axes(self) -> list[str]:
        """The keys that differ between points, in the order of the study."""
        keys = dict.fromkeys(key for assignment in self.assignments for key in assignment)
        return [key for key in keys if len({canonical(each.get(key)) for each in self.assignments}) > 1]

    def axis(self, key: str) -> list[Any]:
        """Return the value of an axis at each point; None: the point does not set it."""
        if key not in self._axes:
            self._axes[key] = [each.get(key) for each in self.assignments]
        return self._axes[key]

    def values(self, key: str) -> np.ndarray:
        """Return a number of summary.json: float64 (points, replications); NaN: none."""
        if key not in self._values:
            found = self._values[key] = np.full((len(self.points), self.num_replications), math.nan)
            for row, ends in enumerate(self.ends):
                for replication, end in ends.items():
                    value = end.summary.get(key)
                    found[row, replication] = math.nan if value is None else value
        return self._values[key]

    def gpus(self) -> np.ndarray:
        """Return the GPUs paid for: float64 (points, replications); NaN: not known."""
        found = np.full((len(self.points), self.num_replications), math.nan)
        for row, ends in enumerate(self.ends):
            for replication, end in ends.items():
                found[row, replication] = end.extra.get("gpus_paid") or math.nan
        return found

    def estimate(self, values: np.ndarray, rows: Sequence[int]) -> Estimate:
        """Return the mean over points, with its interval over replications.

        Only replications that all points have count. Points without a run that is done do not count. Where a queue
        grows there is no steady state, and no interval.
        """
        chosen = values[list(rows)]
        chosen = chosen[~np.isnan(chosen).all(axis=1)]
        if not len(chosen):
            return Estimate(math.nan, math.nan)
        per_seed = chosen.mean(axis=0)
        whole = per_seed[~np.isnan(per_seed)]
        if not len(whole):
            return Estimate(float(np.nanmean(np.nanmean(chosen, axis=1))), math.nan)
        found = of_replications(whole, self.rules.confidence)
        return found._replace(half_width=math.nan) if self.grows[list(rows)].any() else found


def is_numeric(values: Sequence[Any]) -> bool:
    """Return whether an axis has only numbers."""
    return all(isinstance(each, (int, float)) and not isinstance(each, bool) and math.isfinite(each)
               for each in values)


def is_wide(values: Sequence[float]) -> bool:
    """Return whether numbers need a logarithmic axis."""
    low, high = min(values), max(values)
    return low > 0 and high / low > 20
