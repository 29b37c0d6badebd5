"""The questions of pages, answered in order; a newer question ends an older one."""
import threading
from collections import OrderedDict
from collections.abc import Callable
from importlib import import_module
from typing import Any

from simulator.assembly.latency import Readings
from simulator.config.experiment import Experiment
from simulator.errors import InputErrors, faults_of
from simulator.registry import blame
from simulator.study.exploring.answering import Source, Superseded, answer_of
from simulator.study.exploring.controls import BY_ID, CONTROLS, OPTIONAL, assignment_of
from simulator.study.exploring.editing import with_values

MOST_ANSWERS = 16               # that are kept, by text
MOST_PAGES = 256                # with a known turn
MOST_GPUS = 1024                # of a search of plan


class Desk:
    """Answers the questions of all pages of a session.

    Parameters
    ----------
    source : the experiment that a page begins with.
    """

    def __init__(self, source: Source):
        self._first = source
        self._readings = Readings()
        self._running = threading.Lock()            # readings, and cores, are for one run at a time
        self._turns: OrderedDict[str, int] = OrderedDict()
        self._answers: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self.questions = {"/api/start": self.start, "/api/answer": self.answer, "/api/curve": self.curve,
                          "/api/intervals": self.intervals, "/api/layouts": self.layouts, "/api/plan": self.plan}

    def begin(self) -> None:
        """Prepare the first answer, before a page asks for it."""
        self.answer({"page": "", "turn": 0, "text": self._first.text})

    def start(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the text and the controls that a page begins with."""
        return {"text": self._first.text, "file": self._first.file,
                "controls": [control.content() | {"optional": control.id in OPTIONAL} for control in CONTROLS]}

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the text with the values of controls, and the answer or the faults."""
        def find(stop: Callable[[], bool]) -> dict[str, Any]:
            found = self._source(self._changed(_text_of(asked), _values_of(asked), asked.get("good")))
            asked["text"] = found.text              # a refused experiment is shown, too, to be mended
            if found.text not in self._answers:
                self._answers[found.text] = answer_of(found, self._readings, stop)
                if len(self._answers) > MOST_ANSWERS:
                    self._answers.popitem(last=False)
            return {"answer": self._answers[found.text]}

        return self._asked(asked, find)

    def curve(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return goodput against the load."""
        return self._asked(asked, lambda stop: _later("further").curve_of(
            self._source(_text_of(asked)), self._readings, stop))

    def intervals(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return intervals over the errors of the latency model."""
        return self._asked(asked, lambda stop: _later("further").intervals_of(
            self._source(_text_of(asked)), self._readings, stop))

    def layouts(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return layouts that fit."""
        return self._asked(asked, lambda stop: _later("layouts").layouts_of(self._source(_text_of(asked))))

    def plan(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the table of `plan`."""
        gpus = asked.get("gpus")
        if not (isinstance(gpus, int) and 1 <= gpus <= MOST_GPUS):
            return {"faults": [f"GPUs: expected a whole number from 1 to {MOST_GPUS}"]}
        return self._asked(asked, lambda stop: _later("layouts").plan_of(self._source(_text_of(asked)), gpus, stop),
                           in_turn=False)

    def _source(self, text: str) -> Source:
        return Source(text, self._first.file)

    def _changed(self, text: str, values: dict[str, Any], good: str | None) -> str:
        """Return the text with the values of controls, or of keys of the topology.

        good : the last text without faults: controls are turned back from a text with faults.
        """
        controls = {id: value for id, value in values.items() if id in BY_ID}
        keys = {key: value for key, value in values.items() if key.startswith("topology.")}
        if not controls and not keys:
            return text
        given = assignment_of(controls, self._sound(text, good)) if controls else {}
        return with_values(text, self._first.file, given | keys)

    def _sound(self, text: str, good: str | None) -> Experiment:
        """Return the experiment of a text, or else of the last one without faults."""
        try:
            return self._source(text).experiment()
        except InputErrors:
            if not isinstance(good, str):
                raise
            return self._source(good).experiment()

    def _asked(self, asked: dict[str, Any], find: Callable[[Callable[[], bool]], dict[str, Any]],
               in_turn: bool = True) -> dict[str, Any]:
        """Return an answer, or why there is none.

        in_turn : wait for the runs before it.
        """
        page, turn = str(asked.get("page", "")), asked.get("turn", 0)
        turn = turn if isinstance(turn, int) else 0
        self._turns[page] = max(self._turns.pop(page, 0), turn)
        if len(self._turns) > MOST_PAGES:
            self._turns.popitem(last=False)

        def stop() -> bool:
            return self._turns.get(page, turn) > turn

        try:
            if not in_turn:
                return {"text": asked.get("text")} | find(stop)
            with self._running:
                if stop():
                    return {"superseded": True}
                with faults_of(self._first.file):
                    found = find(stop)
        except Superseded:
            return {"superseded": True}
        except InputErrors as errors:
            return {"text": asked.get("text"), "faults": errors.faults}
        except Exception as error:          # a user's class, or a fault of the program: the page must show it
            return {"text": asked.get("text"), "faults": [blame(error) or f"{type(error).__name__}: {error}"]}
        return {"text": asked.get("text")} | found


def _later(name: str) -> Any:
    """Return a module that the first answer does not wait for."""
    return import_module(f"simulator.study.exploring.{name}")


def _text_of(asked: dict[str, Any]) -> str:
    """Return the text of a question. Raises InputErrors: it has none."""
    text = asked.get("text")
    if not isinstance(text, str):
        raise InputErrors(["text: expected the TOML of an experiment"])
    return text


def _values_of(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the values of controls in a question. Raises InputErrors: they are no table."""
    values = asked.get("values") or {}
    if not isinstance(values, dict):
        raise InputErrors(["values: expected values of controls by their ids"])
    return values
