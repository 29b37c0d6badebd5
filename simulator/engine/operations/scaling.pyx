"""Autoscaling of replicas."""
from libc.stdlib cimport free
cimport cython

from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.fleet.events cimport ACTUATE, LIFECYCLE, SCALE
from simulator.engine.operations.lifecycle cimport DRAINING, LOADING, OFF, PROVISIONING, UP, WARMING, Place
from simulator.core.row_list cimport add_row

from functools import partial

import numpy as np

from simulator.core.random_streams import RandomStreams
from simulator.domain import records
from simulator.domain.whole_replicas import added_up
from simulator.scaling.base import Observation, Variant


def is_open(place):
    """Return whether all ranks of a replica may get requests."""
    return all(rank.is_open for rank in place.ranks)


class Group:
    """Replicas, and the autoscaler that decides on their number.

    They serve one model, or one role for its requests. A replica with data-parallel ranks is represented by the place
    of the first.

    model : of the requests that it serves, as named by its pools.
    gateway : where requests wait for the replicas.
    policy : Autoscaler.
    pools : {index of a pool: its places}.
    """

    def __init__(self, model, gateway, policy, pools):
        self.model, self.gateway, self.policy, self.pools = model, gateway, policy, pools
        self.requested_since_ns = {1: None, -1: None}   # more, less

    def requested_for_ns(self, changes, sign, now_ns):
        """Return how long the policy has asked for more replicas, or less, without a break; None: it does not."""
        if not any(change * sign > 0 for change in changes.values()):
            self.requested_since_ns[sign] = None
            return None
        if self.requested_since_ns[sign] is None:
            self.requested_since_ns[sign] = now_ns
        return now_ns - self.requested_since_ns[sign]


@cython.final
cdef class Scaling:
    """Autoscaling of the replicas of a cluster.

    fleet, agenda, lifecycle : of the cluster.
    gateways : list of Gateway; each has an autoscaler of its own, unless one decides on prefill and decode together.
    plan : ClusterPlan.
    settings : domain.autoscaling.Autoscaling.
    policy : subclass of Autoscaler.
    """

    def __init__(self, Fleet fleet, Agenda agenda, Lifecycle lifecycle, gateways, plan, settings, policy):
        self._fleet, self._agenda, self._lifecycle = fleet, agenda, lifecycle
        self._settings, self._pools, self._requests = settings, plan.pools, fleet.workload.requests
        self._generator = RandomStreams(plan.seed).generator("autoscaling")
        self._interval_ns = round(settings.interval_s * 1e9)
        self.wants_finished = policy.wants_finished
        self._groups = []
        found = {}
        for place in lifecycle.places:
            if place is not place.ranks[0]:
                continue
            model = plan.pools[place.pool].model
            pools = found.setdefault((model, policy.needs_roles or place.gateway.index), {})
            pools.setdefault(place.pool, []).append(place)
        for (model, _), pools in found.items():
            gateway = next(iter(pools.values()))[0].gateway
            self._groups.append(Group(model, gateways[plan.models.index(model)] if policy.needs_roles else gateway,
                                      policy(settings.parameters), pools))
        for operation in fleet.operations:
            operation.watch(self._look_at)
        if fleet.mover is not None:
            fleet.mover.mover.watchers.append(self._look_at)

    def _look_at(self, replica, now_ns):
        self._lifecycle.look_at(replica, now_ns)

    def __dealloc__(self):
        free(self._finished.rows)

    def start(self):
        """Await the first decision."""
        self._agenda.tick(self._interval_ns, SCALE, self._decide)

    cdef int note_finished(self, int32_t row) except -1 nogil:
        return add_row(&self._finished, row) if self._fleet.requests[row].replica >= 0 else 0

    def _decide(self, now_ns):
        if self._lifecycle.num_draining > 0:            # migrations may have emptied a replica unnoticed
            for place in self._lifecycle.places:
                self._lifecycle.look_at(place.index, now_ns)
        finished = self._take_finished() if self.wants_finished else {}
        for group in self._groups:
            changes = group.policy.decide(self._observe(group, finished, now_ns))
            self._check(group, changes)
            due = {}
            for sign, window_s in ((1, self._settings.scale_up_stabilization_window_s),
                                   (-1, self._settings.scale_down_stabilization_window_s)):
                requested_ns = group.requested_for_ns(changes, sign, now_ns)
                if requested_ns is not None and requested_ns >= round(window_s * 1e9):
                    due |= {pool: change for pool, change in changes.items() if change * sign > 0}
            if due:
                delay_ns = self._settings.actuation_delay.draw_ns(self._generator)
                self._agenda.at(now_ns + delay_ns, ACTUATE, partial(self._act, group, due))
        self._agenda.tick(now_ns + self._interval_ns, SCALE, self._decide)

    def _check(self, group, changes):
        """Raise ValueError unless a policy, which may be a user's, gave a valid answer."""
        if not (isinstance(changes, dict) and all(isinstance(change, int) for change in changes.values())
                and changes.keys() <= group.pools.keys()):
            raise ValueError(f"{type(group.policy).__name__}.decide: expected {{index of a pool: change}} with pools "
                             f"{sorted(group.pools)}, found {changes!r}")

    # ---- inputs of a policy

    def _observe(self, group, finished, int64_t now_ns):
        cdef Gateway gateway = group.gateway
        cdef Gateway each
        for places in group.pools.values():
            each = places[0].gateway
            each.view.wants_counts = each.view.wants_levels = each.view.wants_times = True
            each.view.look(now_ns)
        queued = gateway.queue.size if gateway.queue is not None else 0
        return Observation(now_ns, tuple(self._variant(pool, places) for pool, places in group.pools.items()),
                           queued, finished.get(group.model, np.zeros(0, records.REQUEST)))

    def _variant(self, pool, places):
        cdef Place first = places[0]
        cdef Gateway gateway = first.gateway
        serving = [place for place in places if is_open(place)]
        view_indices = [rank.view_index for place in serving for rank in place.ranks]
        starting = sum(place.is_starting for place in places)
        plan = self._pools[pool]
        states, accounts = gateway.view.state_array[view_indices], gateway.view.account_array[view_indices]
        if plan.ranks > 1:
            states, accounts = added_up(states, accounts, plan.ranks)
        return Variant(
            index=pool, name=plan.name, cost_per_hour=plan.cost_per_hour * plan.ranks,
            capacity_tokens=first.replica.rank.kv.num_blocks * first.replica.rank.kv.block_size * plan.ranks,
            role=plan.role, accelerators=plan.accelerators * plan.ranks, context_tokens=plan.max_model_len,
            starting=starting,
            room=len(self._vacant(places)), removable=self._removable(len(serving)),
            states=states, accounts=accounts)

    def _take_finished(self):
        """Return the requests that left replicas since the last call, by the model of their pool."""
        cdef int32_t i
        rows, self._finished.size = [self._finished.rows[i] for i in range(self._finished.size)], 0
        found = {}
        for row in rows:
            pool = self._lifecycle.places[self._fleet.requests[<int32_t>row].replica].pool
            found.setdefault(self._pools[pool].model, []).append(row)
        return {model: self._requests[rows] for model, rows in found.items()}

    # ---- changes

    def _vacant(self, places):
        return [place for place in places if place.stage == OFF and not any(rank.faults for rank in place.ranks)]

    def _removable(self, serving):
        return max(serving - self._settings.min_replicas, 0)        # starting replicas do not serve yet

    def _act(self, group, changes, now_ns):
        for pool, change in changes.items():
            places = group.pools[pool]
            if change > 0:
                for place in self._vacant(places)[:change]:
                    self._launch(place, now_ns)
            else:
                serving = [place for place in places if is_open(place)]
                for place in self._in_order(serving)[:min(-change, self._removable(len(serving)))]:
                    self._lifecycle.enter(place, now_ns, DRAINING)
                    if self._settings.drain == "migrate":
                        for rank in place.ranks:
                            self._fleet.mover.evacuate_by_migration(rank.index, now_ns)

    def _in_order(self, places):
        """Return replicas in order of removal."""
        by = {"newest": lambda place: -place.index, "oldest": lambda place: place.index,
              "least_loaded": lambda place: (sum(rank.in_flight for rank in place.ranks), -place.index)}
        return sorted(places, key=by[self._settings.drains])

    def _launch(self, place, now_ns):
        settings = self._settings
        delays = (settings.provisioning_delay, settings.loading_delay, settings.warm_up_delay)
        steps = [(stage, delay.draw_ns(self._generator))
                 for stage, delay in zip((PROVISIONING, LOADING, WARMING), delays, strict=True)]
        self._advance(place, [step for step in steps if step[1] > 0], now_ns)

    def _advance(self, place, steps, now_ns):
        """Move a replica to the next stage of its start; after the last stage it serves."""
        if not steps:
            if self._fleet.mover is not None:
                for rank in place.ranks:
                    self._fleet.mover.leave_alone(rank.index)
            self._lifecycle.enter(place, now_ns, UP)
            return
        (stage, duration_ns), *later = steps
        self._lifecycle.enter(place, now_ns, stage)
        self._agenda.at(now_ns + duration_ns, LIFECYCLE, partial(self._advance, place, later))
