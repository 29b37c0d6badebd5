"""Preview of a study: points that would be refused, without a run."""
from collections.abc import Iterable
from itertools import islice

from simulator.assembly import assemble
from simulator.errors import InputErrors
from simulator.results.memory import NO_SINK
from simulator.study.sweep.design import Point
from simulator.study.sweep.study_file import Study

LOOKED_AT = 8                   # points checked, until one can run


def commented(lines: Iterable[str]) -> str:
    """Return lines as comments of TOML."""
    return "".join(f"# {line}\n" for line in lines)


def not_run(study: Study, points: list[Point]) -> list[str]:
    """Return the first points that would be refused, up to one that can run.

    Nothing is simulated.

    Raises
    ------
    InputErrors
        None of the checked points can run: the faults of the first.
    """
    refusals: list[str] = []
    first: InputErrors | None = None
    for number, point in enumerate(islice(points, LOOKED_AT)):
        try:
            assemble.build(assemble.prepare(study.experiment_of(point)), NO_SINK)
            return refusals
        except InputErrors as errors:
            first = first or errors
            refusals.append(f"point {number} of {len(points)} would be refused: {'; '.join(errors.faults)}")
    if first is None:
        return []
    where = f"{study.file}: " if len(points) == 1 else f"{study.file}: point 0 of {len(points)}: "
    raise InputErrors([fault if fault.startswith(study.file) else where + fault for fault in first.faults])
