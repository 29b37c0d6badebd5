"""The runs of a study, and their file: one line each, written once, with longer runs in files of their own.

plan.jsonl has the runs of the study file. Where precision needs more, plan-2.jsonl and so on add runs to it.
"""
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from simulator.core.paths import remove
from simulator.errors import InputErrors, OutputError
from simulator.study.sweep.design import Point
from simulator.study.sweep.identity import Ids
from simulator.study.sweep.names import PLAN
from simulator.study.sweep.study_file import Study, words_of
from simulator.study.sweep.trial import Trial

NAME = PLAN
SHOWN = 3                       # differences that a message shows


def trials_of(study: Study, points: Iterable[Point]) -> list[Trial]:
    """Return the runs of a study: each point with each seed."""
    found: list[Trial] = []
    for number, point in enumerate(points):
        ids = Ids(study.experiment_of(point), study.more_inputs)
        for replication, seed in enumerate(study.seeds):
            found.append(Trial(len(found), ids.of(seed), number, replication, seed, point))
    return found


def settle(directory: Path, trials: list[Trial], study_file: str, extend: bool = False) -> list[Trial]:
    """Write the plan, or make sure that the existing one is equal.

    Returns all runs, including added ones.

    Parameters
    ----------
    extend : accept a study with more runs, if it still has every run of the old plan.

    Raises
    ------
    InputErrors
        There is another plan, with the differences.
    """
    path = directory / NAME
    if not path.exists():
        write(path, trials)
        return trials
    known = list(read(path))
    if known != trials:
        ids = {trial.id for trial in trials}
        gone = [trial for trial in known if trial.id not in ids]
        old = {trial.id for trial in known}
        new = [trial for trial in trials if trial.id not in old]
        if gone or not extend:
            raise InputErrors([_difference(study_file, directory, gone, new, len(known))])
        write(path, trials)
        for later in sorted(directory.glob("plan-*.jsonl")):     # runs added for the old points
            later.unlink()
        return trials
    return trials + added(directory)


def added(directory: Path) -> list[Trial]:
    """Return the runs that were added for precision so far."""
    found, number = [], 2
    while (path := directory / f"plan-{number}.jsonl").exists():
        found += read(path)
        number += 1
    return found


def add(directory: Path, trials: list[Trial]) -> None:
    """Write additional runs, in a file of their own."""
    number = 2
    while (directory / f"plan-{number}.jsonl").exists():
        number += 1
    write(directory / f"plan-{number}.jsonl", trials)


def write(path: Path, trials: Iterable[Trial]) -> None:
    """Write a plan under a temporary name, and rename it."""
    staged = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with open(staged, "w", encoding="utf-8", newline="\n") as stream:
            for trial in trials:
                stream.write(json.dumps(trial._asdict(), separators=(",", ":"), ensure_ascii=False) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(staged, path)
    except OSError as error:
        remove(staged)
        raise OutputError(path, error) from error


def read(path: Path) -> Iterator[Trial]:
    """Yield the runs of a plan.

    Raises
    ------
    InputErrors
        A line that is no line of a plan: its file and number.
    """
    with open(path, encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            try:
                yield Trial(**json.loads(line))
            except (ValueError, TypeError):
                raise InputErrors([f"{path}:{number}: no line of a plan; the file was changed or damaged"]) from None


def _difference(study_file: str, directory: Path, gone: list[Trial], new: list[Trial], count: int) -> str:
    def runs_text(trials):
        shown = "; ".join(f"{words_of(trial.assignment) or 'the experiment'}, seed {trial.seed}"
                          for trial in trials[:SHOWN])
        return shown + (f"; and {len(trials) - SHOWN} more" if len(trials) > SHOWN else "")

    if [trial._replace(id="") for trial in gone] == [trial._replace(id="") for trial in new]:
        return (f"{study_file}: {directory} holds the same runs of another experiment, or of other files or sources: "
                "its values, what it reads, or the program, have changed; --out another directory")
    parts = [f"{len(gone)} of its {count} runs are no longer asked for ({runs_text(gone)})"] * bool(gone)
    parts += [f"{len(new)} are new ({runs_text(new)})"] * bool(new)
    parts = parts or ["runs come in another order"]
    advice = ("--out another directory" if gone else "--extend takes them, or --out another directory")
    return (f"{study_file}: {directory} holds another study, or one of other files or sources: {'; '.join(parts)}; "
            f"{advice}")
