"""Runs that are not done, by status and reason: none is dropped silently."""
from collections import Counter
from collections.abc import Iterable

from simulator.results.figures.chart import plural
from simulator.study.reports.page import Section, section
from simulator.study.sweep.trial import DONE, Finished

TITLE = "Runs that are not done"


def failures_table(ends: Iterable[Finished | None]) -> Section:
    """Return the number of runs by status and reason; None in `ends`: not ended."""
    ends = list(ends)
    found = Counter(("not ended", "") if end is None else (end.status, end.error or "") for end in ends
                    if end is None or end.status != DONE)
    if not found:
        return Section(TITLE, (), (), "None: all runs are done.")
    rows = [(status, f"{count:,}", why) for (status, why), count in
            sorted(found.items(), key=lambda each: (-each[1], each[0]))]
    says = f"{sum(found.values()):,} of {plural(len(ends), 'run')}."
    return section(TITLE, ("", "runs", "why"), rows, says, "the segments")


def counted(ends: Iterable[Finished | None]) -> str:
    """Return the number of runs by status: "40 done, 2 refused, 3 not ended"."""
    counts = Counter("not ended" if end is None else end.status for end in ends)
    order = (DONE, "refused", "failed", "timeout", "killed", "not ended")
    return ", ".join(f"{counts[status]:,} {status}" for status in order if counts[status]) or "no runs"
