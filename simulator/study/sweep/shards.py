"""One machine's part of a study on several machines: by the hash of a run's id, so that shares are even.

Source of the variables: sbatch(1), "OUTPUT ENVIRONMENT VARIABLES", job arrays.
"""
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from simulator.errors import InputErrors

SLURM = "slurm"
_VARIABLES = {"id": "SLURM_ARRAY_TASK_ID", "min": "SLURM_ARRAY_TASK_MIN", "step": "SLURM_ARRAY_TASK_STEP",
              "count": "SLURM_ARRAY_TASK_COUNT"}
RESTARTS = "SLURM_RESTART_COUNT"        # of a job that was requeued


class Shard(NamedTuple):
    """One of `count` shares; `index` counts from 0."""

    index: int
    count: int

    def __str__(self):
        return f"{self.index}/{self.count}"

    def of(self, ids: Iterable[str]) -> list[str]:
        """Return the ids of this share.

        Of the sorted ids it takes every `count`-th: sizes differ by one at most, and no value of an axis is gathered
        in one share, as it would be in the order of the plan.
        """
        return sorted(ids)[self.index::self.count]


def shard_of(text: str, environ: Mapping[str, str]) -> Shard:
    """Read --shard: "I/N", or "slurm" for the variables of a job array.

    Raises
    ------
    InputErrors
        The text is neither, or this is no task of an array.
    """
    if text == SLURM:
        return _of_slurm(environ)
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if not match or not int(match[1]) < int(match[2]):
        raise InputErrors([f'--shard: expected I/N with I from 0 to N - 1, as 0/8, or "{SLURM}"; found "{text}"'])
    return Shard(int(match[1]), int(match[2]))


def _of_slurm(environ: Mapping[str, str]) -> Shard:
    """Return the share of this task; indexes of arrays may begin anywhere and leave gaps of one step."""
    missing = [name for name in _VARIABLES.values() if not environ.get(name, "").isdecimal()]
    if missing:
        raise InputErrors([f"--shard {SLURM}: {', '.join(missing)}: not set to a whole number; is this a task of "
                           "`sbatch --array`?"])
    found = {key: int(environ[name]) for key, name in _VARIABLES.items()}
    index, rest = divmod(found["id"] - found["min"], max(found["step"], 1))
    if rest or not 0 <= index < found["count"]:
        values = ", ".join(f"{name}={environ[name]}" for name in _VARIABLES.values())
        raise InputErrors([f"--shard {SLURM}: {values}: the array is a list with gaps; use --array=FIRST-LAST[:STEP]"])
    return Shard(index, found["count"])


def restarts(environ: Mapping[str, str]) -> int:
    """Return how often this job was restarted, as Slurm counts."""
    text = environ.get(RESTARTS, "0")
    return int(text) if text.isdecimal() else 0
