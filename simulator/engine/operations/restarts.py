"""Rolling restarts of replicas, and rolling updates from one pool to another."""
import math
from functools import partial

from simulator.core.random_streams import RandomStreams
from simulator.domain import records

OFF, DRAINING, LOADING, WARMING, UP = (
    records.STAGE_NAMES.index(name) for name in ("off", "draining", "loading", "warming", "up"))
CAUSE = records.LIFECYCLE_CAUSES.index("restart")


class Rolling:
    """A rolling restart in progress.

    settings : domain.restarts.Restart. generator : random numbers of its delays.
    """

    def __init__(self, settings, generator):
        self.settings, self.generator = settings, generator
        self.waiting = []       # Place of the first rank of each replica that has not had its turn
        self.replacing = []     # Place of each replica that takes the place of another, all of the new pool
        self.leaving = []       # Place of each replica of the old pool
        self.num_away = 0       # replicas that drain or start


class Restarts:
    """The rolling restarts of a cluster.

    parts : lifecycle, agenda, failures and mover of the cluster; mover None: requests are never moved.
    restarts : of domain.restarts.Restart. pools : their names, in the order in which replicas are numbered.
    seed : of the experiment. starts : Starts of [autoscaling]; None: there is none.
    kind : EventKind of all steps.
    """

    def __init__(self, parts, restarts, pools, seed, starts, kind):
        self._lifecycle, self._agenda, self._outages, self._mover = parts
        self._pools, self._starts, self._kind = pools, starts, kind
        self._all = [Rolling(settings, RandomStreams(seed).generator(f"restarts {number}"))
                     for number, settings in enumerate(restarts)]

    def start(self):
        """Await the first restart of each."""
        for rolling in self._all:
            self._agenda.tick(round(rolling.settings.at_s * 1e9), self._kind, partial(self._begin, rolling))

    def _begin(self, rolling, now_ns):
        settings = rolling.settings
        rolling.waiting = self._replicas(settings.pool)
        if settings.to is not None:
            rolling.leaving = [place for place in rolling.waiting if place.stage == UP]
            rolling.replacing = self._replicas(settings.to)[:len(rolling.leaving)]
        self._go_on(rolling, now_ns)

    def _replicas(self, pool):
        """Return the Place of the first rank of each replica of a pool, None: of all pools."""
        return [place for place in self._lifecycle.places
                if place is place.ranks[0] and pool in (None, self._pools[place.pool])]

    def _go_on(self, rolling, now_ns):
        """Drain the next replicas, as many as may be away."""
        if rolling.replacing:
            self._replace(rolling, now_ns)
            return
        while rolling.waiting and rolling.num_away < rolling.settings.at_once:
            place = rolling.waiting.pop(0)
            if place.stage == UP:
                rolling.num_away += 1
                self._drain(rolling, place, now_ns)

    def _replace(self, rolling, now_ns):
        """Start as many replicas of the new pool, and drain as many of the old one, as may be.

        Source: as of domain.restarts.Restart, functions reconcileNewReplicaSet and reconcileOldReplicaSets.
        """
        surge, fewer = rolling.settings.bounds(len(rolling.leaving))
        both = rolling.leaving + rolling.replacing
        room = len(rolling.leaving) + surge - sum(place.stage != OFF for place in both)
        for place in [place for place in rolling.replacing if place.stage == OFF][:max(room, 0)]:
            self._start(rolling, place, now_ns)
        spare = sum(place.stage == UP for place in both) - (len(rolling.leaving) - fewer)
        for place in [place for place in rolling.waiting if place.stage == UP][:max(spare, 0)]:
            rolling.waiting.remove(place)
            self._drain(rolling, place, now_ns)

    def _retire(self, rolling, place, now_ns):
        """Turn a drained replica of the old pool off; the update goes on."""
        self._outages.let_go_on(place.ranks, now_ns)
        self._lifecycle.enter(place, now_ns, OFF, CAUSE)
        self._agenda.at(now_ns, self._kind, partial(self._go_on, rolling))

    def _drain(self, rolling, place, now_ns):
        settings = rolling.settings
        action = partial(self._load if settings.to is None else self._retire, rolling, place)
        self._lifecycle.when_drained(place, action)
        self._lifecycle.enter(place, now_ns, DRAINING, CAUSE)
        if place.stage == DRAINING and settings.drain == "migrate":
            for rank in place.ranks:
                self._mover.evacuate_by_migration(rank.index, now_ns)
        if place.stage == DRAINING and math.isfinite(settings.grace_s):
            self._agenda.at(now_ns + round(settings.grace_s * 1e9), self._kind,
                            partial(self._stop, settings, place, action))

    def _stop(self, settings, place, action, now_ns):
        """End the grace of a replica, unless it has drained."""
        if self._lifecycle.awaits(place, action):
            self._outages.clear(place.ranks, settings.stop(), now_ns)

    def _load(self, rolling, place, now_ns):
        """Start a drained replica again."""
        self._outages.let_go_on(place.ranks, now_ns)
        self._start(rolling, place, now_ns)

    def _start(self, rolling, place, now_ns):
        """Take a replica through the stages of its start."""
        steps = [step for step in zip((LOADING, WARMING), self._delays_ns(rolling, place), strict=True) if step[1] > 0]
        self._advance(rolling, place, steps, now_ns)

    def _delays_ns(self, rolling, place):
        settings = rolling.settings
        if settings.loading_delay is None:
            return self._starts.durations_ns(place.pool, place.node)[1:]
        warm_up = settings.warm_up_delay
        return (settings.loading_delay.draw_ns(rolling.generator),
                0 if warm_up is None else warm_up.draw_ns(rolling.generator))

    def _advance(self, rolling, place, steps, now_ns):
        """Move a replica to the next stage of its start; after the last stage the next replica drains."""
        if steps:
            (stage, duration_ns), *later = steps
            self._lifecycle.enter(place, now_ns, stage, CAUSE)
            self._agenda.at(now_ns + duration_ns, self._kind, partial(self._advance, rolling, place, later))
            return
        if self._mover is not None:
            for rank in place.ranks:
                self._mover.leave_alone(rank.index)
        self._lifecycle.enter(place, now_ns, UP, CAUSE)
        rolling.num_away -= 1
        self._agenda.at(now_ns, self._kind, partial(self._go_on, rolling))
