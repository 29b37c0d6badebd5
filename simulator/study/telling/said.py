"""Remarks of the runs of a study beside their numbers, each sentence once, and how far their prices were checked.

`run` prints the warnings and the diagnosis of one run. A study has many runs: all kinds of studies gather the remarks
of their runs here and print them in one form: on the screen, in their JSON, in reports. The result depends on the set
of runs, not on the machine that ran them or on their order.
"""
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from textwrap import wrap
from typing import Any, NamedTuple

import tomli

from simulator.config.experiment import Experiment
from simulator.domain.facts import folder
from simulator.results.report import COLUMNS_OF_A_SCREEN, aged

FILE = "efficiency/checked.toml"        # in hardware/
NUMBER = re.compile(r"(?<![\w.-])\d+(?:[.,:]\d+)*(?![\w-])")     # a number by itself: neither h100 nor rtx-4090
THINGS, VERB = re.compile(r"# (\w+?)s?\b"), re.compile(r"\b(?:was|were|is|are|has|have|lies?|generates?)\b")
MOST_LINES = 20                 # remarks on a screen; the JSON has all
AGAIN = "repeated with new seeds"       # new simulations agree with an answer: not a comparison with servers
DIAGNOSIS, BACKENDS = "diagnosis", "backends"           # keys of a run's `extra`


class Remark(NamedTuple):
    """A sentence that runs print.

    text : in the words of the most runs, where its numbers differ. runs : their ids, sorted. of : number of all runs.
    is_alike : all runs have the sentence in equal words.
    """

    text: str
    runs: tuple[str, ...]
    of: int
    is_alike: bool

    def content(self, names: bool = False) -> dict[str, Any]:
        """Return the remark as it is written to JSON; `names` as in `line`."""
        content = {"text": self.text, "runs": len(self.runs), "of": self.of, "alike": self.is_alike}
        return content | ({"names": list(self.runs)} if names else {})

    def line(self, things: str = "runs", names: bool = False) -> str:
        """Return the remark as a warning.

        Parameters
        ----------
        things : noun for the runs. names : the ids are names that users know.
        """
        ids = f" ({', '.join(self.runs)})" if names else ""
        example = "" if self.is_alike else ", for instance"
        return f"warning: in {len(self.runs):,} of {self.of:,} {things}{ids}{example}: {self.text}"


class Said:
    """Remarks of runs, by their ids: a run that is added twice counts once."""

    def __init__(self):
        self._texts: dict[str, tuple[str, ...] | None] = {}
        self._backends: dict[str, None] = {}
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}        # most runs have equal remarks, stored once

    def add(self, id: str, texts: Sequence[str] | None, backends: Iterable[str] = ()) -> None:
        """Add a run; `texts` None: of a version that did not keep remarks."""
        own = None if texts is None else tuple(texts)
        self._texts[id] = own if own is None else self._known.setdefault(own, own)
        self._backends |= dict.fromkeys(backends)

    def add_ends(self, ends: Iterable[Any]) -> "Said":
        """Add the completed ones of some trials (`sweep.trial.Finished`)."""
        for end in ends:
            if end is not None and end.status == "done":
                self.add(end.id, end.extra.get(DIAGNOSIS), end.extra.get(BACKENDS, ()))
        return self

    def merge(self, other: "Said") -> None:
        """Add the remarks of another collection."""
        for id, texts in other._texts.items():
            self.add(id, texts)
        self._backends |= other._backends

    @property
    def remarks(self) -> list[Remark]:
        """The remarks, the most frequent first.

        Sentences that differ in numbers alone are one.
        """
        pairs = [(id, text) for id, texts in self._texts.items() for text in dict.fromkeys(texts or ())]
        found: dict[str, dict[str, str]] = {}
        for id, text in pairs:
            found.setdefault(_without_numbers(text), {}).setdefault(id, text)
        count = sum(texts is not None for texts in self._texts.values())
        made = []
        for own in found.values():
            texts = Counter(own.values())
            most = min(texts, key=lambda text: (-texts[text], text))
            made.append(Remark(most, tuple(sorted(own)), count, len(texts) == 1))
        return sorted(made, key=lambda each: (-len(each.runs), each.text))

    @property
    def num_untold(self) -> int:
        """Number of runs of a version that did not keep remarks."""
        return sum(texts is None for texts in self._texts.values())

    def content(self, names: bool = False) -> dict[str, Any]:
        """Return the remarks as the JSON of studies has them; `names` as in `Remark.line`."""
        untold = {"untold_runs": self.num_untold} if self.num_untold else {}
        return {"diagnosis": [each.content(names) for each in self.remarks]} | untold | {
            "accuracy": accuracy_of(self._backends)}

    def warnings(self, things: str = "runs", names: bool = False) -> list[str]:
        """Return the remarks as lines of a screen; parameters as of `Remark.line`."""
        remarks = self.remarks
        texts = [each.line(things, names) for each in remarks[:MOST_LINES]]
        if len(remarks) > MOST_LINES:
            texts.append(f"note: {len(remarks) - MOST_LINES:,} warnings more are in the JSON of the study")
        if self.num_untold:
            texts.append(f"note: {self.num_untold:,} {things} are of an older version, which did not keep their "
                         "warnings")
        return [line for text in texts for line in wrapped(text)]

    def lines(self, things: str = "runs", names: bool = False) -> list[str]:
        """Return the remarks, and how far the backends were checked, as lines of a screen."""
        texts = [line_of(each) for each in accuracy_of(self._backends)]
        return [*self.warnings(things, names), *(line for text in texts for line in wrapped(text))]


def _without_numbers(text: str) -> str:
    """Return a sentence without its numbers: "1 output was" and "2 outputs were" become one."""
    return VERB.sub("#", THINGS.sub(r"# \1", NUMBER.sub("#", text)))


def backends_of(experiments: Iterable[Experiment]) -> list[str]:
    """Return the latency backends of experiments, sorted."""
    return sorted({pool.latency.backend for each in experiments for pool in each.all_pools()})


def accuracy_of(backends: Iterable[str]) -> list[dict[str, str | None]]:
    """Return how far backends were checked, with the source, by name."""
    known, found = _known(), []
    for name in sorted(backends):
        own = known.get(name, {"checked": "a class of your own, of which nothing is known", "source": None})
        found.append({"backend": name, "checked": own["checked"], "score": own.get("score"), "source": own["source"]})
    return found


def line_of(accuracy: Mapping[str, str | None]) -> str:
    """Return how far a backend was checked, as a sentence."""
    lead, source = f"accuracy of {accuracy['backend']}: ", accuracy["source"]
    if accuracy["score"]:
        return f"{lead}{accuracy['score']}; checked: {accuracy['checked']}"
    return f"{lead}not compared with real servers; checked: {accuracy['checked']}" + f" ({source})" * bool(source)


def aged_prices(experiment: Experiment, today: date) -> Iterator[str]:
    """Yield a sentence for each price that is old, as `run` does.

    The sentence depends on the day, so no file holds it.
    """
    names = dict.fromkeys(pool.hardware.name for pool in experiment.pools or (experiment,)
                          if pool.hardware is not None and not getattr(pool, "cost_per_hour", 0.0))
    prices = [(name, (experiment.prices or {}).get(name)) for name in names]
    for sentence in aged({"cost": {"prices": [
            {"accelerator": name, "per_gpu_hour": price.per_gpu_hour, "source": price.source, "date": price.date}
            for name, price in prices if price is not None]}}, today):
        yield from wrapped(f"warning: {sentence}")


def wrapped(text: str) -> list[str]:
    """Return a sentence as lines that fit a screen, if no word is too long."""
    return wrap(text, COLUMNS_OF_A_SCREEN, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


@cache
def _known() -> dict[str, dict[str, str]]:
    return tomli.loads((folder("hardware") / FILE).read_text(encoding="utf-8"))
