"""Base of autoscalers: the number of replicas of each pool.

An autoscaler is called every few seconds, so that plain Python is fast enough: users' own policies are built like ours.
"""
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simulator.domain.autoscaling import Rates


@dataclass(frozen=True)
class Variant:
    """A pool as an autoscaler sees it.

    index, name : of the pool.
    cost_per_hour : of a replica.
    capacity_tokens : tokens that the KV cache of a replica holds.
    starting : replicas that will serve soon.
    room : replicas that may be added.
    removable : replicas that may be taken away.
    states : structured array (serving,), `records.REPLICA_STATE`, reports of the replicas that serve.
    accounts : structured array (serving,), `records.REPLICA_ACCOUNT`, the gateway's accounts of the serving replicas.
    role : "both", or the part of requests that its replicas do, "prefill" or "decode".
    accelerators : of a replica.
    is_known : array (serving,) of bool: a report of the replica is there; the others are shown without load. None: all.
    context_tokens : longest text of a request, prompt and output.

    With [autoscaling.metrics], states and accounts are those of scrapes, or their mean or maximum.
    """

    index: int
    name: str
    cost_per_hour: float
    capacity_tokens: int
    starting: int
    room: int
    removable: int
    states: np.ndarray
    accounts: np.ndarray
    role: str = "both"
    accelerators: int = 1
    is_known: np.ndarray | None = None
    context_tokens: int = 2**31 - 1

    @property
    def serving(self) -> int:
        """Replicas that requests may be sent to."""
        return len(self.states)

    def known(self) -> np.ndarray:
        """Return for each serving replica whether a report of it is there."""
        return np.ones(self.serving, bool) if self.is_known is None else self.is_known


class Sample(NamedTuple):
    """Requests of a model at one time.

    time_ns : of the sample.
    requests : at its replicas and at the gateway.
    """

    time_ns: int
    requests: float


@dataclass(frozen=True)
class Observation:
    """An autoscaler's view of the replicas that it decides on.

    They serve one model, or do one part of its requests.

    now_ns : the time.
    variants : tuple of Variant, the pools that serve the model.
    queued : requests that wait at the gateway.
    finished : structured array (n,), `records.REQUEST`, the requests that left replicas since the last decision; empty
        unless `wants_finished`.
    ttft_ns : array (n,), times to first token of the requests that had it within `metrics.window_s`, or since the last
        decision; None unless `wants_ttft`.
    samples : of the last `keeps_s` seconds, oldest first, one for each scrape or, without [autoscaling.metrics], each
        decision.
    """

    now_ns: int
    variants: tuple[Variant, ...]
    queued: float
    finished: np.ndarray
    ttft_ns: np.ndarray | None = None
    samples: tuple[Sample, ...] = ()

    @property
    def serving(self) -> int:
        """Replicas that requests may be sent to."""
        return sum(variant.serving for variant in self.variants)

    @property
    def starting(self) -> int:
        """Replicas that will serve soon."""
        return sum(variant.starting for variant in self.variants)

    @property
    def replicas(self) -> int:
        """Replicas that serve, or will soon: `spec.replicas` of Kubernetes."""
        return self.serving + self.starting

    def known(self) -> np.ndarray:
        """Return for each of `states` whether a report of the replica is there."""
        return np.concatenate([variant.known() for variant in self.variants])

    def states(self) -> np.ndarray:
        """Return the states of all replicas that serve."""
        return np.concatenate([variant.states for variant in self.variants])

    def accounts(self) -> np.ndarray:
        """Return the accounts of all replicas that serve."""
        return np.concatenate([variant.accounts for variant in self.variants])


class Autoscaler:
    """Base of all autoscalers, also of users': override `decide`.

    The experiment names the subclass: `policy = "my_lab.scaling:Nightly"`. There is one for each model that is served;
    with disaggregation, one for prefill and another for decode replicas, unless it `needs_roles`.
    A frozen `msgspec.Struct` on the class as `Parameters` has keys of [autoscaling] read, checked and passed on.

        class Nightly(Autoscaler):
            def decide(self, observation):
                is_night = observation.now_ns / 3.6e12 % 24 < 6
                return spread(observation, (1 if is_night else 8) - observation.serving - observation.starting)

    parameters : content of [autoscaling], as `Parameters`.
    """

    Parameters = None
    wants_finished = False      # it looks at the requests that have left
    wants_ttft = False          # it looks at times to first token; may be set by __init__
    keeps_s = 0.0               # span of `Observation.samples`; may be set by __init__
    interval_s = 15.0           # default of the key
    stabilization = "unbroken"  # default of the key
    windows_s = (0.0, 0.0)      # defaults of the windows before a model grows, and shrinks
    rates: Rates | None = None  # default of the key
    needs_roles = False         # it decides on prefill and decode pools of a model together, and on no others
    note = ""                   # simplification of the policy, for `diagnosis`
    takes_whole = False         # with needs_roles: or on pools that serve whole requests
    orders: tuple = ()          # of schedule.Change, which the engine carries out at their instants
    unread: tuple[str, ...] = ()    # keys of [autoscaling] that have no effect with it
    why_no_roles = ""           # why it cannot decide on these pools one by one; "": it can

    def __init__(self, parameters):
        self.parameters = parameters

    @classmethod
    def faults(cls, parameters, interval_s: float, pools: tuple):
        """Yield (key, fault) for keys that do not fit the pools, or the interval.

        pools : with `name` and `role`; (): a single one is not named, and serves whole requests.
        """
        return ()

    @classmethod
    def notes(cls, parameters) -> tuple[str, ...]:
        """Return assumptions and replacements, for the diagnosis of a run."""
        return ()

    @classmethod
    def unfounded(cls, parameters, clock_s: float) -> tuple[str, ...]:
        """Return remarks on predictions for which the run was too short."""
        return ()

    def decide(self, observation: Observation) -> dict[int, int]:
        """Return by how many replicas each pool is to grow, or shrink.

        A pool that is absent stays as it is; more than `room` and `removable` is cut to these.
        """
        raise NotImplementedError(f"{type(self).__name__} must override decide")


def spread(observation: Observation, change: int) -> dict[int, int]:
    """Return a change pool by pool: the cheapest grow first, the dearest shrink first."""
    changes = {}
    for variant in sorted(observation.variants, key=lambda each: each.cost_per_hour, reverse=change < 0):
        part = min(change, variant.room) if change > 0 else max(change, -variant.removable)
        if part:
            changes[variant.index] = part
        change -= part
    return changes


def to_total(observation: Observation, replicas: int) -> dict[int, int]:
    """Return the changes that lead to a number of replicas, those that start included."""
    return spread(observation, replicas - observation.replicas)


def in_proportion(observation: Observation, ratio: float, tolerance: float) -> dict[int, int]:
    """Return the change that brings a load `ratio` times its target to its target.

    replicas = ceil(serving x ratio), no change while |ratio - 1| <= tolerance; starting replicas count as serving.
    Source: Kubernetes, Horizontal Pod Autoscaling, "Algorithm details".
    """
    if observation.serving == 0:
        return spread(observation, int(observation.starting == 0 and observation.queued > 0))
    if abs(ratio - 1) <= tolerance:
        return {}
    needed = math.ceil(observation.serving * ratio)
    change = needed - observation.serving
    return spread(observation, max(change - observation.starting, 0) if change > 0 else change)
