"""Policies side by side on equal requests: built-in ones, linear ones and agents, with paired intervals."""
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from simulator import registry
from simulator.api import Order, run_ordered
from simulator.config.load import load_experiment
from simulator.errors import InputErrors
from simulator.gym.episode import ADMISSION, ROUTER, SCALING, Watched
from simulator.gym.rewards import Gains, Rewards, gains_of
from simulator.study.processes import in_processes
from simulator.study.statistics.intervals import of_pairs, of_replications
from simulator.study.telling.screen import lines_of, table_of

_CHOICES = {
    ROUTER: ("router", lambda name: {"cluster.routing.policy": name, "cluster.routing.scorers": [],
                                     "cluster.routing.filters": []}),
    ADMISSION: ("admission", lambda name: {"cluster.admission.policy": name}),
    SCALING: ("autoscaler", lambda name: {"autoscaling.policy": name}),
}
_HEAD = ("policy", "reward", "- first", "+/-", "good", "cost", "fairness", "TTFT p99 ms")


class Score(NamedTuple):
    """A policy in one case.

    reward : of the whole run. gains : totals of the run. ttft_p99_ms : of completed requests; None: there are none.
    """

    reward: float
    gains: Gains
    ttft_p99_ms: float | None


class Question(NamedTuple):
    """A comparison that is asked for; arguments as in `compare`."""

    file: str
    kind: str
    policies: dict[str, Any]
    cases: tuple[dict[str, Any], ...]
    rewards: Rewards
    overrides: dict[str, Any]


class Comparison(NamedTuple):
    """Scores of policies; `str` gives the table.

    scores : by policy, one for each case; the others are compared with the first policy.
    refused : by policy, why the experiment cannot be run with it.
    """

    scores: dict[str, list[Score]]
    refused: dict[str, str]

    def difference(self, name: str, confidence: float = 0.95):
        """Return the mean difference of rewards from the first policy, an Estimate."""
        first = next(iter(self.scores.values()))
        return of_pairs([each.reward for each in self.scores[name]], [each.reward for each in first], confidence)

    def __str__(self):
        rows = [_HEAD]
        for name, scores in sorted(self.scores.items(), key=lambda item: -_mean(each.reward for each in item[1])):
            gap = self.difference(name)
            times = [each.ttft_p99_ms for each in scores if each.ttft_p99_ms is not None]
            rows.append((name, f"{_mean(each.reward for each in scores):,.2f}", f"{gap.mean:+,.2f}",
                         f"{gap.half_width:,.2f}", f"{_mean(each.gains.good for each in scores):,.1f}",
                         f"{_mean(each.gains.cost for each in scores):,.3f}",
                         f"{_mean(each.gains.fairness for each in scores):.3f}",
                         f"{_mean(times):,.0f}" if times else "-"))
        table = table_of(rows, left=(0,))
        return "\n".join([table, *(lines_of(f"{name}: refused: {why}") for name, why in self.refused.items())])


def built_in(kind: str, names: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
    """Return built-in policies as overrides, by name.

    Parameters
    ----------
    kind : "router", "admission" or "scaling".
    names : of the policies; None: all of the kind, with their default keys.
    """
    of_registry, overrides_of = _CHOICES[kind]
    return {name: overrides_of(name) for name in names or registry.KINDS[of_registry].entries}


def compare(experiment: str | os.PathLike, policies: Mapping[str, Any], cases: Iterable[int | Mapping[str, Any]], *,
            kind: str = ROUTER, rewards: Rewards | None = None, overrides: Mapping[str, Any] | None = None,
            processes: int = 1) -> Comparison:
    """Run policies on equal requests.

    A policy that the experiment refuses is listed with the reason; only the first one has to run.

    Parameters
    ----------
    policies : by name: overrides of the experiment, of `built_in` or `linear_router` for instance, or an agent, a
        function of observation and info that returns an action.
    cases : seeds that training did not see, or overrides, such as {"workload.path": a trace that it did not see}.
    kind : "router", "admission" or "scaling": the decisions of agents.
    rewards : weights, as an environment takes them; None: one for each good request.
    overrides : values of all runs.
    processes : policies that run at the same time; agents must be functions of modules then.

    Raises
    ------
    InputErrors
        The first policy is refused; no policy or no case is given.
    """
    cases = tuple(each if isinstance(each, Mapping) else {"seed": int(each)} for each in cases)
    if not policies or not cases:
        raise InputErrors(["compare: expected at least one policy, and one case"])
    question = Question(os.fspath(experiment), kind, dict(policies), cases, rewards or Rewards(), dict(overrides or {}))
    found = {name: _scores(question, name) for name in policies} if processes == 1 else dict(
        in_processes(_scores, question, policies, processes))
    first = next(iter(policies))
    if isinstance(found[first], InputErrors):
        raise found[first]
    refused = {name: found[name].faults[0] for name in policies if isinstance(found[name], InputErrors)}
    return Comparison({name: found[name] for name in policies if name not in refused}, refused)


def _scores(question: Question, name: str) -> list[Score] | InputErrors:
    policy = question.policies[name]
    score = _score_of_agent if callable(policy) else _score_of_overrides
    try:
        return [score(question, policy, {**question.overrides, **case}) for case in question.cases]
    except InputErrors as errors:
        return errors


def _score_of_overrides(question: Question, policy: Mapping[str, Any], case: Mapping[str, Any]) -> Score:
    experiment, watched = load_experiment(question.file, {**case, **policy}, "compare"), Watched()
    result = run_ordered(Order(experiment, None, False, True, build=watched.build))
    return _score(gains_of(watched.finished, experiment), result, question)


def _score_of_agent(question: Question, agent: Callable, case: Mapping[str, Any]) -> Score:
    from simulator.gym.environments import ENVIRONMENTS  # needs gymnasium, which overrides do not

    environment = ENVIRONMENTS[question.kind](question.file, case)
    observation, info = environment.reset()
    has_ended = False
    while not has_ended:
        observation, _, has_ended, _, info = environment.step(agent(observation, info))
    return _score(environment.gains, environment.result, question)


def _score(gains: Gains, result, question: Question) -> Score:
    times = result.summary["ttft_ms"]
    return Score(gains.reward_since(Gains(), question.rewards), gains, times["p99"] if times else None)


def _mean(values: Iterable[float]) -> float:
    return of_replications(list(values)).mean
