"""The rules behind the difference of two versions, found by experiment.

The newer version runs with single rules of the older one. A rule is responsible for the first difference if the runs
agree beyond it once the rule is set back. Then the search goes on behind it, with this rule set back.
"""
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from simulator.config.layers import Layers
from simulator.domain.vllm_versions import VERSIONS, behaving, differing
from simulator.errors import InputErrors
from simulator.study.compare import KnownOutputs
from simulator.study.first_difference import NEVER, Difference, Schedule, compared, schedule_of
from simulator.study.two_versions import Side, experiment_of, run_of, settings_of


class Cause(NamedTuple):
    """The rules behind one difference.

    rules : fields of VllmBehaviour; each alone takes the difference away, or, `together`, only the whole group
        does; (): the difference comes from facts by version.
    """

    difference: Difference
    rules: tuple[str, ...]
    together: bool = False


class Answer(NamedTuple):
    """The causes that were found.

    causes : in the order in which they act. rest : the first difference without a cause, because the number of runs
        was reached; None: there is none. runs : of the newer version with rules set back.
    """

    causes: list[Cause]
    rest: Difference | None
    runs: int


class Search:
    """The search for the causes of a difference.

    Parameters
    ----------
    layers : the experiment. old, new : both sides, run. most_runs : limit of runs. count : called after each run.
    """

    def __init__(self, layers: Layers, old: Side, new: Side, most_runs: int,
                 count: Callable[[], None] = lambda: None):
        self._layers, self._old, self._new, self._most, self._count = layers, old, new, most_runs, count
        self._before = schedule_of(old.result)
        self._fields = differing(old.version, new.version)
        self._runs = 0

    def answer(self) -> Answer:
        """Return the causes."""
        causes: list[Cause] = []
        back: tuple[str, ...] = ()
        difference = compared(self._before, schedule_of(self._new.result)).first
        try:
            while difference is not None:
                cause = self._cause(difference, back)
                causes.append(cause)
                if not cause.rules:
                    break
                back += cause.rules if cause.together else cause.rules[:1]
                difference = self._difference(back)
        except _Spent:
            return Answer(causes, difference, self._runs)
        return Answer(causes, None, self._runs)

    def _cause(self, difference: Difference, back: tuple[str, ...]) -> Cause:
        left = [field for field in self._fields if field not in back]
        alone = tuple(field for field in left if self._removes((*back, field), difference))
        if alone or not left or not self._removes((*back, *left), difference):
            return Cause(difference, alone)
        for field in tuple(left):               # a smallest group: none of it can be left out
            fewer = [each for each in left if each != field]
            if fewer and self._removes((*back, *fewer), difference):
                left = fewer
        return Cause(difference, tuple(left), together=True)

    def _removes(self, back: tuple[str, ...], difference: Difference) -> bool:
        """Return whether the runs agree beyond a difference with some rules set back."""
        first = self._difference(back, difference.time_ns)
        return first is None or first > difference

    def _difference(self, back: tuple[str, ...], until_ns: int = NEVER) -> Difference | None:
        """Return the first difference with some rules set back; a refused run differs from the first moment on."""
        if self._runs >= self._most:
            raise _Spent
        self._runs += 1
        try:
            schedule = self._schedule(back, until_ns)
        except InputErrors:                     # the older rule refuses what only the newer one has
            return Difference(-1, False, -1, -1, -1)
        finally:
            self._count()
        return compared(self._before, schedule, until_ns).first

    def _schedule(self, back: tuple[str, ...], until_ns: int) -> Schedule:
        with set_back(self._old.version, self._new.version, back):
            experiment = experiment_of(self._layers, self._new.version)
            plan = self._new.plan
            workload = plan.workload
            if until_ns < NEVER and is_cuttable(workload):
                plan = first_requests(plan, int((workload.requests["arrival_ns"] <= until_ns).sum()))
            plan = plan._replace(experiments={self._new.version: experiment})
            return schedule_of(run_of(plan, self._new.version))


class _Spent(Exception):
    """The number of runs is reached."""


def is_cuttable(workload: Any) -> bool:
    """Return whether no request of a workload waits for another one."""
    return workload.script is None and not workload.num_warmups


def first_requests(plan: Any, count: int) -> Any:
    """Return a plan with the first requests alone."""
    outputs = {name: KnownOutputs(known.expected_tokens[:count], known.notes)
               for name, known in plan.known_outputs.items()}
    return plan._replace(workload=plan.workload.first(count), known_outputs=outputs)


def set_back(old: str, new: str, fields: Iterable[str]):
    """Return a block in which the newer version has some fields of the older one."""
    return behaving(new, **{field: getattr(VERSIONS[old], field) for field in fields})


def changed_settings(layers: Layers, old: Side, new: Side) -> Iterator[tuple[str, Any, Any, tuple[str, ...]]]:
    """Yield (key, old value, new value, rules) of settings that differ.

    Each of the rules, set back alone, restores the old value.
    """
    keys = [key for key in old.settings | new.settings if old.settings.get(key) != new.settings.get(key)]
    found: Mapping[str, list[str]] = {key: [] for key in keys}
    for field in differing(old.version, new.version) if keys else ():
        try:
            with set_back(old.version, new.version, [field]):
                settings = settings_of(experiment_of(layers, new.version))
        except InputErrors:
            continue
        for key in keys:
            if settings.get(key) == old.settings.get(key):
                found[key].append(field)
    for key in keys:
        yield key, old.settings.get(key), new.settings.get(key), tuple(found[key])
