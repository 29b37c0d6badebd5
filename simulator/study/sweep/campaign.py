"""A whole sweep: its plan, its runs, longer runs for the requested precision, its tables."""
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simulator.config.words import show
from simulator.errors import InputErrors, OutputError
from simulator.study.sweep import plan
from simulator.study.sweep.laboratory import Laboratory
from simulator.study.sweep.lengthening import more_of
from simulator.study.sweep.manifest import keep
from simulator.study.sweep.merge import merge, points_table
from simulator.study.sweep.names import STUDY
from simulator.study.sweep.segments import FOLDER, checked, read_all
from simulator.study.sweep.shards import Shard
from simulator.study.sweep.study_file import Study, check_points, read_study
from simulator.study.sweep.trial import DONE, Finished, Trial
from simulator.study.telling.said import Said

RECORDED = ("metrics", "confidence", "min_tail")        # keys of [study.statistics] that lines of segments depend on


class How(NamedTuple):
    """Options of a sweep.

    num_processes, stop, keep, elsewhere : as `Laboratory` takes them.
    shard : the part that is run here; None: all. retry : statuses of runs that are run again.
    limit : points, at most; None: a million. extend : accept a study with more runs than the stored plan.
    """

    num_processes: int = 1
    stop: Callable[[], bool] = lambda: False
    keep: bool = False
    elsewhere: Callable | None = None
    shard: Shard | None = None
    retry: frozenset[str] = frozenset()
    limit: int | None = None
    extend: bool = False
    writer: str | None = None


class Campaign:
    """A sweep in a directory.

    Parameters
    ----------
    study : to be run; its points are checked.
    directory : of the study, created if missing; None: nothing is written.

    study : the checked one.
    planned : its runs, in the order of the plan, longer ones last. known : runs that have ended, by id.
    num_torn : lines of segments that were not written to their end: those runs are done again.

    Raises
    ------
    InputErrors
        Points that are no experiments, another study in the directory, damaged segments.
    RuntimeError
        A run has two different results: it is not deterministic.
    """

    def __init__(self, study: Study, directory: Path | None, how: How):
        self.study, self._directory, self._how = study, directory, how
        self.planned = plan.trials_of(study, check_points(study, how.limit))
        self.known: dict[str, Finished] = {}
        self.num_torn = 0
        if directory is None:
            return
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(directory, error) from error
        strangers = [path for path in directory.iterdir() if not (directory / plan.NAME).exists()]
        if strangers:
            raise InputErrors([f"{directory}: holds something else than a study ({strangers[0].name}); --out chooses "
                               "another directory"])
        self.planned = plan.settle(directory, self.planned, study.file, how.extend)
        check_recorded(study, directory)
        keep(study, directory)
        stored = checked(read_all(directory))
        if stored.differing:
            raise RuntimeError("; ".join(stored.faults))
        self.num_torn = stored.num_torn
        self.known = {id: end for id, end in stored.finished.items() if end.status not in how.retry}

    @property
    def mine(self) -> list[Trial]:
        """The runs of this shard."""
        if self._how.shard is None:
            return self.planned
        chosen = set(self._how.shard.of({trial.id for trial in self.planned}))
        return [trial for trial in self.planned if trial.id in chosen]

    def run(self) -> Iterator[Finished]:
        """Yield the results of the runs of this shard, including added ones."""
        how = self._how
        laboratory = Laboratory(
            self.study, self._directory, how.num_processes, self.known, stop=how.stop, keep=how.keep,
            elsewhere=how.elsewhere, writer=how.writer)
        yield from laboratory.run(self.mine)
        while how.shard is None and not how.stop() and not self.missing():
            more = more_of(self.study, self.planned, self.known)
            if not more:
                return
            if self._directory is not None:
                plan.add(self._directory, more)
            self.planned = self.planned + more
            yield from laboratory.run(more)

    def missing(self) -> list[Trial]:
        """Return the runs of this shard that have not ended."""
        return [trial for trial in self.mine if trial.id not in self.known]

    def points(self) -> np.ndarray:
        """Return the points, as /points has them."""
        settings = self.study.settings
        return points_table(settings.statistics, settings.run.baseline, self.planned, self.known)

    def said(self) -> Said:
        """Return the remarks of the runs that have ended."""
        return Said().add_ends(self.known.get(trial.id) for trial in self.planned)

    def merge(self) -> dict:
        """Write the tables; return the content of summary.json."""
        return merge(self.study, self._directory, self.planned, self.known)


def study_in(directory: Path) -> Study:
    """Return the study of a directory.

    Raises
    ------
    InputErrors
        There is none.
    """
    if not (directory / STUDY).is_file():
        raise InputErrors([f"{directory}: no study: there is no {STUDY}"])
    return read_study(directory / STUDY)


def failures(ends: list[Finished]) -> list[Finished]:
    """Return the runs that are neither done nor refused."""
    return [end for end in ends if end.status not in (DONE, "refused")]


def check_recorded(study: Study, directory: Path) -> None:
    """Make sure that earlier runs were summarized with the statistics of this study.

    Their lines hold numbers after the warm-up cut, and intervals of the recorded metrics only.

    Raises
    ------
    InputErrors
        They were summarized with other statistics.
    """
    if not (directory / STUDY).is_file() or not any((directory / FOLDER).glob("*")):
        return
    before = study_in(directory)
    looked = [(key, *(getattr(each.settings.statistics, key) for each in (before, study))) for key in RECORDED]
    faults = [f"{study.file}: study.statistics.{key}: the runs in {directory} were looked at with {show(was)}, found "
              f"{show(now)}; --out chooses another directory"
              for key, was, now in [("warmup", before.warmup, study.warmup), *looked] if was != now]
    if faults:
        raise InputErrors(faults)
