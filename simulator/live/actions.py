"""Actions of an admin on the replicas of a live fleet, which a run of the record repeats.

Each is recorded as an item of the experiment's tables: failures as [[failures]], orders as [[autoscaling.changes]].
"""
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from simulator.assembly.assemble import READ_BY_CONFLICTS, Prepared
from simulator.assembly.parts.base import Part
from simulator.assembly.parts.upkeep import Upkeep
from simulator.config import conflicts
from simulator.config.experiment import Experiment
from simulator.config.load import changed
from simulator.domain.failures import Failure
from simulator.engine.operations.lifecycle import Lifecycle
from simulator.engine.operations.outages import is_idle
from simulator.engine.operations.upkeep import Upkeep as Operation
from simulator.errors import InputErrors
from simulator.scaling.schedule import Change

KINDS = {"kill": "stop", "partition": "link", "slow": "slow"}       # verb -> kind of the failure
STATES = ("off", "provisioning", "loading", "warming", "up", "draining", "slow", "cut_off", "down")
ON_FAILURE = ("retry", "lost")


class LosesLinks(Part):
    """Replicas that may lose their link, as in a run with failures of links."""

    def plan(self, plan, sink):
        """See Part."""
        return replace(plan, tracks_identity=True)


class NotPossible(Exception):
    """An action that the fleet cannot take now, or never; the message says why."""


class Action(NamedTuple):
    """An action of an admin: its instant, and its arguments."""

    time_ns: int
    verb: str
    arguments: dict[str, Any]


class Fault:
    """A failure by an admin, and its end.

    failure : domain.failures.Failure. source : of `Outages`.
    """

    def __init__(self, failure: Failure, source):
        self.failure, self.source = failure, source


def with_upkeep(prepared: Prepared) -> tuple[Prepared, str]:
    """Return an experiment with replicas that may fail, and why they cannot fail.

    The reason is "" if they can.

    A run of the record has failures, too: conflicts of failures with other keys count.
    """
    experiment = prepared.experiment
    probe = changed(experiment, failures=(*experiment.failures, Failure(kind="stop", at_s=0.0, which=0)))
    known = [{name: partial(getattr, site, name) for name in READ_BY_CONFLICTS} for site in prepared.sites]
    try:
        conflicts.refuse(probe, known)
    except InputErrors as refused:
        return prepared, "; ".join(refused.faults)
    own, parts = {type(part): part for part in prepared.parts}, []
    for part in probe.parts():
        if type(part) not in own:
            part = Upkeep(experiment)
            part.prepare(prepared.sites)
        parts.append(own.get(type(part), part))
    return replace(prepared, parts=tuple(parts)), ""


class Actions:
    """Takes actions, each at an instant of its own.

    cluster : of the fleet. free_instant : returns an instant for an input from outside that comes now. why_not : no
    replica may fail for this reason; "": there is none.
    """

    def __init__(self, experiment: Experiment, cluster, free_instant, why_not: str = ""):
        self._experiment, self._free_instant, self._why_not = experiment, free_instant, why_not
        found = [operation for operation in cluster.operations if isinstance(operation, Operation)]
        self._upkeep = found[0] if found else None
        self._faults: list[Fault] = []
        self._open: dict[int, list[Fault]] = {}         # replica -> faults without an end
        self._changes: list[Change] = []
        self.taken: list[Action] = []

    # ---- actions: each returns its instant

    def fail(self, verb: str, replica: int, now_ns: int, on_failure: str | None = None, factor: float = 2.0,
             for_s: float | None = None) -> int:
        """Let a replica stop, lose its link or become slow.

        for_s : simulated time until it is back; None: until `restore`. on_failure : of a stop or a lost link, one of
        `ON_FAILURE`; None: that of the first of [[failures]], else "lost".
        """
        place = self._place(replica)
        if not place.serves:
            raise NotPossible(f"replica {replica} is {STATES[place.state]}")
        if any(fault.failure.kind == KINDS[verb] for fault in self._open.get(replica, ())):
            raise NotPossible(f"replica {replica} is {STATES[place.state]} already")
        time_ns = self._free_instant(now_ns)
        failure = Failure(kind=KINDS[verb], which=replica, at_s=time_ns / 1e9, duration_s=for_s,
                          **{"slow_factor": factor} if verb == "slow" else {
                              "on_failure": on_failure or self._on_failure})
        fault = Fault(failure, self._upkeep.fail(failure))
        self._faults.append(fault)
        if for_s is None:
            self._open.setdefault(replica, []).append(fault)
        details = {"factor": factor} if verb == "slow" else {"on_failure": failure.on_failure}
        return self._note(time_ns, verb, {"replica": replica, **details} | ({} if for_s is None else {"for_s": for_s}))

    def restore(self, replica: int, now_ns: int) -> int:
        """End the failures of a replica that have no end of their own."""
        self._place(replica)
        faults = self._open.pop(replica, [])
        if not faults:
            raise NotPossible(f"replica {replica} has no failure that could end")
        time_ns = self._free_instant(now_ns)
        for fault in faults:
            since_ns = round(fault.failure.at_s * 1e9)
            fault.failure = replace(fault.failure, duration_s=(time_ns - since_ns) / 1e9)
            self._upkeep.recover(fault.source, time_ns)
        return self._note(time_ns, "restore", {"replica": replica})

    def reset_cache(self, replica: int | None, now_ns: int) -> int:
        """Empty the prefix cache of a replica, with all its ranks; None: of all replicas."""
        places = [place for place in self._lifecycle.places if replica in (None, place.number)]
        if not places:
            self._place(replica)
        busy = [place.number for place in places if place.serves and not is_idle(place.replica)]
        if busy:
            raise NotPossible(f"replica {busy[0]} has requests: their KV blocks are in use")
        return self._empty(places, replica, now_ns)

    def empty_caches(self, replica: int | None, now_ns: int) -> bool:
        """Empty the prefix caches that no request uses; return whether those are all.

        replica : with all its ranks, each by itself; None: all replicas.
        """
        idle, busy = self._idle_and_busy(replica)
        if idle:
            self._empty(idle, replica, now_ns)
        return not busy

    def scale(self, pool: str | None, replicas: int, now_ns: int, verb: str = "scale") -> int:
        """Order a number of replicas of a pool, None: of the only one, or of each."""
        names = [each.name for each in self._experiment.pools]
        if pool is not None and pool not in names:
            raise NotPossible(f'there is no pool "{pool}"')
        return self._order(verb, now_ns, {"pool": pool, "replicas": replicas})

    def add(self, pool: str | None, count: int, now_ns: int) -> int:
        """Order further replicas of a pool."""
        if pool is None and len(self._experiment.pools) > 1:
            raise NotPossible("give the pool: there are several")
        return self.scale(pool, self.num_there(pool) + count, now_ns, "add")

    def drain(self, replica: int, now_ns: int) -> int:
        """Let a replica finish its requests, and go."""
        if self._place(replica).stage != STATES.index("up"):
            raise NotPossible(f"replica {replica} is {STATES[self._place(replica).state]}")
        return self._order("drain", now_ns, {"remove": replica})

    def note(self, verb: str, arguments: dict[str, Any], now_ns: int) -> int:
        """Record an action on answers or settings, which the cluster does not see."""
        return self._note(self._free_instant(now_ns), verb, arguments)

    # ---- state

    def states(self) -> list[str]:
        """Return the state of each replica, and rank; (): they cannot change."""
        return [] if self._upkeep is None else [STATES[place.state] for place in self._upkeep.lifecycle.places]

    def has_requests(self, replica: int | None) -> bool:
        """Return whether a replica has a request, None: whether any has."""
        return bool(self._idle_and_busy(replica)[1])

    @property
    def has_tiers(self) -> bool:
        """Whether some replica has KV tiers."""
        return any(pool.kv_tiers is not None for pool in self._experiment.all_pools())

    def num_there(self, pool: str | None) -> int:
        """Return the number of replicas of a pool that serve or start; None: of all."""
        names, places = [each.name for each in self._experiment.all_pools()], self._lifecycle.places
        return sum(place.stage == STATES.index("up") or place.is_starting for place in places
                   if place is place.ranks[0] and pool in (None, names[place.pool]))

    def recorded(self, experiment: Experiment) -> Experiment:
        """Return the experiment with all actions so far."""
        made = changed(experiment, failures=(*experiment.failures, *(fault.failure for fault in self._faults)))
        if not self._changes:
            return made
        parameters = made.autoscaling.parameters
        changes = replace(parameters, changes=(*parameters.changes, *self._changes))
        return changed(made, autoscaling=replace(made.autoscaling, parameters=changes))

    # ---- private

    @property
    def _on_failure(self) -> str:
        given = [failure.on_failure for failure in self._experiment.failures if failure.on_failure in ON_FAILURE]
        return given[0] if given else "lost"

    @property
    def _lifecycle(self) -> Lifecycle:
        if self._upkeep is None:
            raise NotPossible(f"replicas of this experiment cannot change: {self._why_not}")
        return self._upkeep.lifecycle

    def _place(self, replica: int):
        numbers = {place.number: place for place in reversed(self._lifecycle.places)}
        if replica not in numbers:
            raise NotPossible(f"expected a replica from 0 to {max(numbers)}, found {replica}")
        return numbers[replica]

    def _idle_and_busy(self, replica: int | None) -> tuple[list, list]:
        """Return the ranks that serve, without and with requests, of a replica or of all."""
        places = [place for place in self._lifecycle.places if replica in (None, place.number) and place.serves]
        idle = [place for place in places if is_idle(place.replica)]
        return idle, [place for place in places if place not in idle]

    def _order(self, verb: str, now_ns: int, keys: dict[str, Any]) -> int:
        scaling = self._experiment.autoscaling
        if scaling is None or scaling.policy != "schedule":
            raise NotPossible('the number of replicas changes by [autoscaling] policy = "schedule" alone, found '
                              + ("no [autoscaling]" if scaling is None else f'"{scaling.policy}"'))
        time_ns = self._free_instant(now_ns)
        change = Change(at_s=time_ns / 1e9, **keys)
        self._upkeep.order(change)
        self._changes.append(change)
        return self._note(time_ns, verb, {name: value for name, value in keys.items() if value is not None})

    def _empty(self, places: list, replica: int | None, now_ns: int) -> int:
        time_ns = self._free_instant(now_ns)
        failures = [Failure(kind="cache", which=number, at_s=time_ns / 1e9)
                    for number in dict.fromkeys(place.number for place in places)]
        self._faults += [Fault(failure, self._upkeep.fail(failure)) for failure in failures]
        return self._note(time_ns, "reset_cache", {"replica": replica})

    def _note(self, time_ns: int, verb: str, arguments: dict[str, Any]) -> int:
        self.taken.append(Action(time_ns, verb, arguments))
        return time_ns
