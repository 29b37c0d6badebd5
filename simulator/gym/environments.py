"""Environments of gymnasium: an agent in place of a router, of admission, or of an autoscaler."""
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from simulator.config.experiment import Experiment
from simulator.errors import MissingExtra
from simulator.gym import observations as seen
from simulator.gym.episode import ADMISSION, ROUTER, SCALING, Episode, asked
from simulator.gym.rewards import Gains, Rewards
from simulator.latency.readings import Readings

try:
    import gymnasium
    from gymnasium import spaces
except ImportError:
    raise MissingExtra(["simulator.gym needs gymnasium: install it with pip install 'simulator[gym]'"]) from None

MOST = np.float32(seen.MOST)


class _Env(gymnasium.Env):
    """An episode is one run of an experiment; a step is one decision.

    The seed of an episode is that of the experiment: requests, and all that is drawn during the run, follow from it.
    `reset` without a seed takes the experiment's for the first episode, and draws those of later episodes from it.

    Parameters
    ----------
    experiment : a TOML file; its policy of the kind that the agent replaces is not used.
    overrides : values that win over the file, as in `simulator.run`.
    goodput, cost, fairness : weights of the reward, see `Rewards`.

    Attributes
    ----------
    gains : Gains, totals of the episode so far.
    result : Result of the last episode that ended; None: none has.
    """

    metadata = {"render_modes": []}     # noqa: RUF012, as gymnasium declares it
    kind, sees_caches = ROUTER, False

    def __init__(self, experiment: str | os.PathLike, overrides: Mapping[str, Any] | None = None, *,
                 goodput: float = 1.0, cost: float = 0.0, fairness: float = 0.0):
        self.rewards = Rewards(goodput=goodput, cost=cost, fairness=fairness)
        self.gains = self._before = Gains()
        self.result = None
        self._file, self._overrides = experiment, dict(overrides or {})
        self._readings, self._episode, self._last_ns, self._is_seeded = Readings(), None, 0, False
        self.experiment = self._experiment_with({})
        self._set_spaces(self.experiment)

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None):
        """Begin an episode; return observation and facts.

        options : {"overrides": {...}}, values of this episode, such as another trace.
        """
        self._leave()
        if seed is None and not self._is_seeded:
            seed = self.experiment.seed
        super().reset(seed=seed)
        if seed is None:
            seed = int(self.np_random.integers(2**31))
        self._is_seeded = True
        overrides = (options or {}).get("overrides", {})
        self._episode = Episode(self._experiment_with({**overrides, "seed": int(seed)}), self._readings)
        self._last_ns, self._before = 0, Gains()
        self._episode.begin()
        self.gains = self._episode.gains
        return self._observe(), self._info() | {"seed": int(seed)}

    def step(self, action):
        """Act; return observation, reward, whether the run has ended, False, and facts."""
        if self._episode is None or self._episode.decision is None:
            raise gymnasium.error.ResetNeeded("the episode has ended, or none has begun: call reset")
        self._last_ns = self._episode.decision.now_ns
        self._episode.answer(self._answer(action))
        self._before, self.gains = self.gains, self._episode.gains
        reward = self.gains.reward_since(self._before, self.rewards)
        has_ended = self._episode.decision is None
        if has_ended:
            self.result = self._episode.result
        return self._observe(), float(reward), has_ended, False, self._info()

    def close(self):
        """End an episode that has not ended."""
        self._leave()

    def action_mask(self) -> np.ndarray:
        """Return which actions are possible now; a mask of bool by action."""
        return np.ones(self.action_space.n, bool)

    def _leave(self) -> None:
        if self._episode is not None:
            self._episode.leave()
            self._episode = None

    def _experiment_with(self, more: Mapping[str, Any]) -> Experiment:
        return asked(self.kind, self._file, {**self._overrides, **more}, self.sees_caches)

    def _observe(self):
        if self._episode.decision is None:
            return {name: np.zeros(space.shape, space.dtype) for name, space in self.observation_space.items()}
        return self._shown(self._episode.decision)

    def _info(self) -> dict:
        """Return the facts of a decision; values of one name have one type, so that environments can be joined."""
        episode = self._episode
        info = {"ended": tuple(episode.ended.tolist()), "good": self.gains.good, "cost": float(self.gains.cost),
                "fairness": float(self.gains.fairness)}
        decision = episode.decision
        if decision is None:
            return info
        info["now_ns"] = decision.now_ns
        return info if decision.row < 0 else info | seen.facts_of(episode.workload, decision.row)

    def _set_spaces(self, experiment: Experiment) -> None:
        raise NotImplementedError

    def _shown(self, decision) -> dict:
        raise NotImplementedError

    def _answer(self, action):
        raise NotImplementedError


def _box(least: float, *shape: int) -> spaces.Box:
    return spaces.Box(np.float32(least), MOST, shape, np.float32)


class _OfRequests(_Env):
    """Decisions on requests in front of replicas."""

    def _set_spaces(self, experiment):
        num_replicas = sum(pool.places for pool in experiment.all_pools() if pool.role != "encode")
        self.observation_space = spaces.Dict({
            "replicas": _box(-1, num_replicas, len(seen.REPLICA_COLUMNS)),
            "request": _box(-MOST, len(seen.REQUEST_COLUMNS))})
        self.action_space = spaces.Discrete(num_replicas if self.kind == ROUTER else 2)

    def _shown(self, decision):
        return {"replicas": seen.replicas_of(decision),
                "request": seen.request_of(decision, self._episode.workload, self._last_ns)}


class RouterEnv(_OfRequests):
    """The agent chooses the replica of each request.

    observation : {"replicas": `REPLICA_COLUMNS` of each replica, "request": `REQUEST_COLUMNS`}.
    action : number of a replica; in place of a closed one the next open one gets the request, and info["was_open"] of
        the step is False.
    sees_caches : False: column cached_blocks is -1, and no index of prefixes is kept.
    """

    kind = ROUTER

    def __init__(self, experiment: str | os.PathLike, overrides: Mapping[str, Any] | None = None, *,
                 sees_caches: bool = True, **rewards: float):
        self.sees_caches, self._was_open = sees_caches, True
        super().__init__(experiment, overrides, **rewards)

    def action_mask(self):
        """Return which replicas are open."""
        return self._episode.decision.accounts["is_routable"].astype(bool)

    def _answer(self, action):
        is_open, action = self._episode.decision.accounts["is_routable"], int(action)
        self._was_open = bool(is_open[action])
        return action if self._was_open else (action + int(np.roll(is_open, -action).argmax())) % len(is_open)

    def _info(self):
        return super()._info() | {"was_open": self._was_open}


class AdmissionEnv(_OfRequests):
    """The agent admits or rejects each request; the experiment's router sends it.

    observation : as in RouterEnv; column cached_blocks is -1.
    action : 1: admit, 0: reject.
    """

    kind = ADMISSION

    def _answer(self, action):
        return bool(action)


class ScalingEnv(_Env):
    """The agent decides on the number of replicas, each [autoscaling] interval_s.

    Delays, windows, rates and limits are those of the experiment. A number beyond the room of a pool is cut to it.

    observation : {"pools": `POOL_COLUMNS` of each pool, "model": `MODEL_COLUMNS`}; with [autoscaling.metrics], pools as
        they were scraped.
    action : replicas of the pool that serve or start, from its least number on: Discrete; of several pools:
        MultiDiscrete.
    """

    kind = SCALING

    def _set_spaces(self, experiment):
        pools = [pool for pool in experiment.all_pools() if pool.role != "encode"]
        most = [pool.places // pool.topology.data_parallel for pool in pools]
        least = [min(experiment.autoscaling.min_replicas, each) for each in most]
        self.observation_space = spaces.Dict({
            "pools": _box(-1, len(pools), len(seen.POOL_COLUMNS)),
            "model": _box(-1, len(seen.MODEL_COLUMNS))})
        numbers = [high - low + 1 for high, low in zip(most, least, strict=True)]
        self.action_space = (spaces.Discrete(numbers[0], start=least[0]) if len(pools) == 1
                             else spaces.MultiDiscrete(numbers, start=least))

    def action_mask(self):
        """Return a mask of numbers of replicas, or one for each pool; all are possible."""
        if isinstance(self.action_space, spaces.Discrete):
            return super().action_mask()
        return tuple(np.ones(number, bool) for number in self.action_space.nvec)

    def _shown(self, decision):
        episode = self._episode
        model = (decision.scaling.queued, episode.arrived(self._last_ns), len(episode.ended),
                 self.gains.good - self._before.good, (decision.now_ns - self._last_ns) * 1e-9)
        return {"pools": seen.pools_of(decision), "model": np.array(model, np.float32)}

    def _answer(self, action):
        return tuple(int(each) for each in np.atleast_1d(action))


def vectorised(kind: type[_Env], experiment: str | os.PathLike, num_envs: int, *, processes: bool = True,
               context: str | None = None, **arguments: Any):
    """Return environments of an experiment side by side, each with its own seed.

    `reset(seed=s)` gives environment i the seed s + i.

    Parameters
    ----------
    kind : RouterEnv, AdmissionEnv or ScalingEnv; arguments : of it.
    processes : each environment in a process of its own, on as many cores as there are; False: all in this process.
    context : how processes start, as in multiprocessing; None: as usual on this system.
    """
    makers: list[Callable[[], _Env]] = [partial(kind, experiment, **arguments)] * num_envs
    if processes:
        return gymnasium.vector.AsyncVectorEnv(makers, context=context)
    return gymnasium.vector.SyncVectorEnv(makers)


ENVIRONMENTS = {kind.kind: kind for kind in (RouterEnv, AdmissionEnv, ScalingEnv)}
for _kind in ENVIRONMENTS.values():
    gymnasium.register(f"simulator/{_kind.__name__.removesuffix('Env')}-v0", f"{__name__}:{_kind.__name__}")
