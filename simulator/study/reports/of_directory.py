"""The report of any study's directory."""
from pathlib import Path

from simulator.study.reports import kinds
from simulator.study.reports.calibration import calibration_page
from simulator.study.reports.capacity import capacity_page
from simulator.study.reports.kinds import kind_of
from simulator.study.reports.page import Page
from simulator.study.reports.sweep import sweep_page
from simulator.study.reports.tune import tune_page

REPORTS = {kinds.SWEEP: sweep_page, kinds.CAPACITY: capacity_page, kinds.TUNE: tune_page,
           kinds.CALIBRATE: calibration_page}


def page_of(directory: Path, against: Path | None = None) -> Page:
    """Return the report of a study.

    against : a study of the same kind to compare it with; None: none.

    Raises
    ------
    InputErrors
        Files are missing or damaged.
    """
    kind = kind_of(directory)
    return REPORTS[kind](directory, against)
