"""Studies from Python."""
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simulator.errors import did_you_mean
from simulator.results.frames import pandas_of
from simulator.study.distributed.trials import at_workers
from simulator.study.sweep.campaign import Campaign, How, study_in
from simulator.study.sweep.merge import LABELS, own_requests, runs_table
from simulator.study.sweep.needs import check_metrics
from simulator.study.sweep.study_file import read_study


class Tables(NamedTuple):
    """Structured arrays, like /runs and /points of table.h5."""

    runs: np.ndarray
    points: np.ndarray

    def to_pandas(self, table: str = "points"):
        """Return a table as a pandas.DataFrame.

        Status and backlog are categorical, `frame[frame.status == "done"]`; a run that has not ended has none.

        Parameters
        ----------
        table : "points" or "runs".

        Raises
        ------
        ImportError
            pandas is not installed.
        ValueError
            There is no such table.
        """
        if table not in self._fields:
            raise ValueError(f"no table {table!r}{did_you_mean(table, self._fields)}")
        return pandas_of(getattr(self, table), LABELS)


class Studied(Tables):
    """The tables of a study, and the remarks of its runs.

    runs : structured array, like /runs of table.h5.
    points : structured array, like /points of table.h5.
    said : as in summary.json, `telling.said`: diagnosis and accuracy.
    """

    said: Mapping[str, Any] = {}


def sweep(file: str | os.PathLike, overrides: Any = None, *, out: str | os.PathLike | None = None, jobs: int = 1,
          client: Any = None) -> Studied:
    """Run a sweep.

    Parameters
    ----------
    file : study file.
    overrides : values above the file's, as in `simulator.run`.
    out : directory of the study, with the results of earlier runs; None: nothing is written.
    jobs : processes side by side; more than 1 takes `if __name__ == "__main__":` around the call.
    client : a distributed.Client, of dask-jobqueue for instance: its workers run the points instead.

    Raises
    ------
    InputErrors
        All faults of the study, one line each.
    """
    study = read_study(file, overrides)
    check_metrics(study)
    how = How(jobs, elsewhere=None if client is None else at_workers(client))
    campaign = Campaign(study, None if out is None else Path(out).absolute(), how)
    for _ in campaign.run():
        pass
    if out is not None:
        campaign.merge()
    return _tables(campaign)


def load_study(directory: str | os.PathLike) -> Studied:
    """Read a study from its plan and segments, also while it is running.

    Raises
    ------
    InputErrors
        There is no study, or it is damaged.
    """
    directory = Path(directory)
    return _tables(Campaign(study_in(directory), directory.absolute(), How()))


def _tables(campaign: Campaign) -> Studied:
    ends = [campaign.known.get(trial.id) for trial in campaign.planned]
    studied = Studied(runs_table(campaign.planned, ends, own_requests(campaign.study)), campaign.points())
    studied.said = campaign.said().content()
    return studied
