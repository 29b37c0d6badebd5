"""The record of a campaign: the machine, and for each part its rows, its seconds and the points left out."""
import json
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

SCHEMA = 1


class OutOfTime(Exception):
    """The seconds of a part, or of the campaign, are used up."""


class Part:
    """The rows of one part while it measures.

    Parameters
    ----------
    ends_at : reading of `clock` after which no point begins.
    """

    def __init__(self, ends_at: float, clock: Callable[[], float]):
        self._ends_at, self._clock = ends_at, clock
        self.rows: list[dict] = []
        self.left_out: list[dict] = []

    def remaining_s(self) -> float:
        """Return the seconds until the part ends; negative: it is over."""
        return self._ends_at - self._clock()

    def add(self, measure: Callable[[], dict], **point) -> None:
        """Measure a point and keep its row; a point that fails is kept with the reason.

        OutOfTime: the part is over.
        """
        if self.remaining_s() <= 0:
            raise OutOfTime
        try:
            self.rows.append(point | measure())
        except Exception as fault:      # noqa: BLE001: a kernel that this card refuses must not end the campaign
            self.left_out.append(point | {"why": f"{type(fault).__name__}: {fault}"[:300]})


class Record:
    """The record of a campaign, written after each part, whole or not at all."""

    def __init__(self, file: Path, machine: dict, budget_s: float, clock: Callable[[], float] = time.monotonic):
        self._file, self._clock = file, clock
        self._ends_at = clock() + budget_s
        self.content = {"schema": SCHEMA, "machine": machine, "budget_s": budget_s, "parts": {}}

    @contextmanager
    def part(self, name: str, budget_s: float):
        """Yield the Part of this name; write the record when it ends, however it ends."""
        began = self._clock()
        part = Part(min(began + budget_s, self._ends_at), self._clock)
        entry = {"complete": False, "rows": part.rows, "left_out": part.left_out}
        self.content["parts"][name] = entry
        try:
            yield part
            entry["complete"] = True
        except OutOfTime:
            entry["why"] = f"its {budget_s:g} s, or the campaign's, were over"
        except Exception as fault:      # noqa: BLE001: the parts after this one still measure
            entry["why"] = f"{type(fault).__name__}: {fault}"[:300]
        finally:
            entry["took_s"] = round(self._clock() - began, 3)
            self.write()

    def write(self) -> None:
        """Write the record."""
        beside = self._file.with_name(self._file.name + ".new")
        self._file.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(self.content, indent=1) + "\n", encoding="utf-8")
        beside.replace(self._file)
