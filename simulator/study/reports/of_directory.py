"""The report of any study's directory."""
from pathlib import Path

from simulator.study.reports import kinds
from simulator.study.reports.calibration import calibration_told
from simulator.study.reports.capacity import capacity_told
from simulator.study.reports.kinds import kind_of
from simulator.study.reports.sweep import sweep_told
from simulator.study.reports.told import Told
from simulator.study.reports.tune import tune_told

REPORTS = {kinds.SWEEP: sweep_told, kinds.CAPACITY: capacity_told, kinds.TUNE: tune_told,
           kinds.CALIBRATE: calibration_told}


def told_of(directory: Path, against: Path | None = None) -> Told:
    """Return the report of a study.

    against : a study of the same kind to compare it with; None: none.

    Raises
    ------
    InputErrors
        Files are missing or damaged.
    """
    kind = kind_of(directory)
    return REPORTS[kind](directory, against)
