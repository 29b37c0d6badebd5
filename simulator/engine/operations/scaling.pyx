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
from simulator.engine.operations.activity import Activity, are_for
from simulator.engine.operations.pace import Pace, keeping_one
from simulator.engine.operations.scrapes import FirstTokens, Samples, Scrapes
from simulator.engine.operations.shared_budget import Mediator
from simulator.engine.operations.starts import Starts
from simulator.errors import InputErrors, KeyFault
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
    settings : domain.autoscaling.Autoscaling.
    """

    def __init__(self, model, gateway, policy, pools, settings):
        self.model, self.gateway, self.policy, self.pools = model, gateway, policy, pools
        self.pace = Pace(settings, type(policy))
        keeps_ns = round(policy.keeps_s * 1e9)
        self.scrapes = Scrapes(settings.metrics, keeps_ns) if settings.metrics is not None else None
        self.samples = Samples(keeps_ns) if self.scrapes is None else self.scrapes.samples
        self.first_tokens = None        # FirstTokens, if the policy looks at them
        self.activity = None            # Activity, with [autoscaling.zero]


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
        self.starts = Starts(settings, self._generator, {
            (place.pool, place.node) for place in lifecycle.places if place.is_open})
        self._offsets = RandomStreams(plan.seed).generator("autoscaling metrics")
        self._interval_ns = round((settings.interval_s or policy.interval_s) * 1e9)
        self.wants_finished = policy.wants_finished
        self._groups, self._scraped = [], []
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
                                      policy(settings.parameters), pools, settings))
            self._complete(self._groups[len(self._groups) - 1], plan, fleet.workload)
        self._owners = {pool: group for group in self._groups for pool in group.pools}
        self._mediator = None if settings.shared_budget is None else Mediator(
            settings.shared_budget, {pool: each.accelerators * each.ranks for pool, each in enumerate(plan.pools)
                                     if pool in self._owners},
            {pool: self._groups.index(group) for pool, group in self._owners.items()})
        for operation in fleet.operations:
            operation.watch(self._look_at)
        if fleet.mover is not None:
            fleet.mover.mover.watchers.append(self._look_at)

    def _complete(self, group, plan, workload):
        """Add the records of a group's requests that its policy, and scaling to zero, look at."""
        clients, metrics = len(workload.requests) - workload.num_prefill_legs, self._settings.metrics
        if group.policy.wants_ttft:
            group.first_tokens = FirstTokens(self._requests[:clients], round(metrics.window_s * 1e9) if metrics else 0)
        if self._settings.zero is not None:
            is_own = are_for(group.model, plan.models, workload)[:clients]
            group.activity = Activity(self._settings.zero, self._requests[:clients], is_own)

    def _look_at(self, replica, now_ns):
        self._lifecycle.look_at(replica, now_ns)

    def __dealloc__(self):
        free(self._finished.rows)

    def start(self):
        """Await the first decision, scrape and poll."""
        settings = self._settings
        if settings.metrics is not None:
            self._scrape_ns = round(settings.metrics.scrape_interval_s * 1e9)
            self._next_scrape_ns = self._scrape_ns if settings.metrics.offset == "none" else max(
                round(self._offsets.random() * self._scrape_ns), 1)
            self._agenda.tick(self._next_scrape_ns, SCALE, self._scrape)
        if settings.zero is not None:
            self._poll_ns = round(settings.zero.poll_s * 1e9)
            self._agenda.tick(self._poll_ns, SCALE, self._poll)
        self._agenda.tick(self._interval_ns, SCALE, self._decide)
        for change in self._groups[0].policy.orders:
            self.order(change)

    def order(self, change):
        """Carry out a change at its instant; change : scaling.schedule.Change."""
        numbers = [place.number for place in self._lifecycle.places]
        if change.remove is not None and change.remove not in numbers:
            raise InputErrors([KeyFault(f"autoscaling.changes.remove: expected a replica up to {max(numbers)}, found "
                                        f"{change.remove}")])
        self._agenda.tick(round(change.at_s * 1e9), SCALE, partial(self._carry_out, change))

    def _carry_out(self, change, now_ns):
        for group in self._groups:
            for pool, places in group.pools.items():
                if change.remove is not None:
                    for place in places:
                        if place.number == change.remove:
                            self._num_cut += place.stage != UP
                            if place.stage == UP:
                                self._drain(place, now_ns)
                elif change.pool in (None, self._pools[pool].name):
                    delay_ns = self._settings.actuation_delay.draw_ns(self._generator)
                    self._agenda.at(now_ns + delay_ns, ACTUATE, partial(self._reach, group, pool, change.replicas))

    def _reach(self, group, pool, replicas, now_ns):
        """Start or drain replicas of a pool up to an ordered number, when the order takes effect."""
        places = group.pools[pool]
        change = replicas - sum(place.stage == UP or place.is_starting for place in places)
        serving = sum(is_open(place) for place in places)
        self._num_cut += change > len(self._vacant(places)) or -change > self._removable(serving)
        self._change(group, {pool: change}, now_ns)

    cdef int note_finished(self, int32_t row) except -1 nogil:
        return add_row(&self._finished, row) if self._fleet.requests[row].replica >= 0 else 0

    def _decide(self, now_ns):
        if self._lifecycle.num_draining > 0:            # migrations may have emptied a replica unnoticed
            for place in self._lifecycle.places:
                self._lifecycle.look_at(place.index, now_ns)
        if self._settings.metrics is not None and self._next_scrape_ns == now_ns:
            self._scrape(now_ns)
        finished = self._take_finished() if self.wants_finished else {}
        for group in self._groups:
            observation = self._observe(group, finished, now_ns)
            if group.activity is not None and observation.replicas == 0:
                continue
            changes = group.policy.decide(observation)
            self._check(group, changes)
            if group.activity is not None:
                changes = keeping_one(observation, changes)
            due = group.pace.due(observation, changes)
            for each, granted in self._granted(group, due, now_ns) if due else ():
                delay_ns = self._settings.actuation_delay.draw_ns(self._generator)
                self._agenda.at(now_ns + delay_ns, ACTUATE, partial(self._act, each, granted))
        self._agenda.tick(now_ns + self._interval_ns, SCALE, self._decide)

    def _granted(self, group, due, now_ns):
        """Return (group, changes) of all groups with granted changes; `due` : changes that a group asks for."""
        if self._mediator is None:
            return [(group, due)]
        there = {pool: sum(place.stage not in (OFF, DRAINING) for place in places)
                 for each in self._groups for pool, places in each.pools.items()}
        granted, found = self._mediator.grant(now_ns, due, there), []
        for each in dict.fromkeys([*(self._owners[pool] for pool in granted), group]):
            own = {pool: change for pool, change in granted.items() if pool in each.pools}
            each.pace.amend(now_ns, due if each is group else {}, own)
            if own:
                found.append((each, own))
        return found

    def _scrape(self, now_ns):
        """Scrape all serving replicas that answer, and the gateways."""
        if now_ns < self._next_scrape_ns:               # a decision at the same instant has scraped already
            return
        for group in self._groups:
            self._look(group, now_ns)
            replicas, found = [], []
            for pool, places in group.pools.items():
                answering = [place for place in places if is_open(place) and not any(
                    rank.stands_still for rank in place.ranks)]
                replicas += [place.index for place in answering]
                found.append(self._read(group, pool, answering))
            states, accounts = (np.concatenate(parts) for parts in zip(*found, strict=True))
            group.scrapes.add(now_ns, self._queued(group), replicas, states, accounts)
            if group.first_tokens is not None:
                group.first_tokens.look(now_ns)
        self._scraped += self._finished_rows()
        self._next_scrape_ns += self._scrape_ns
        self._agenda.tick(self._next_scrape_ns, SCALE, self._scrape)

    def _poll(self, now_ns):
        """Remove all replicas of a model that has been without requests, and start one for new ones."""
        for group in self._groups:
            is_active, places = group.activity.look(now_ns), [place for own in group.pools.values() for place in own]
            if is_active is False:
                for place in places:
                    if is_open(place):
                        self._drain(place, now_ns)
            elif is_active and not any(is_open(place) or place.is_starting for place in places):
                self._start(group, self._first(group), now_ns)
        self._agenda.tick(now_ns + self._poll_ns, SCALE, self._poll)

    def _first(self, group):
        """Return {pool: replicas} with which a model goes on from zero."""
        if self._settings.min_replicas > 0:
            return dict.fromkeys(group.pools, self._settings.min_replicas)
        vacant = [pool for pool, places in group.pools.items() if self._vacant(places)]
        roles = {}
        for pool in sorted(vacant, key=lambda pool: self._pools[pool].cost_per_hour * self._pools[pool].ranks):
            roles.setdefault(self._pools[pool].role, pool)
        return dict.fromkeys(roles.values(), 1)

    def _check(self, group, changes):
        """Raise ValueError unless a policy, which may be a user's, gave a valid answer."""
        if not (isinstance(changes, dict) and all(isinstance(change, int) for change in changes.values())
                and changes.keys() <= group.pools.keys()):
            raise ValueError(f"{type(group.policy).__name__}.decide: expected {{index of a pool: change}} with pools "
                             f"{sorted(group.pools)}, found {changes!r}")

    def notes(self):
        """Return the simplifications of this run."""
        found = [group.policy.note for group in self._groups if group.policy.note]
        if self._settings.metrics is not None:
            found.append("autoscaling.metrics: all replicas are scraped at one instant, and a scrape takes no time")
        if self.starts.weight_bytes is not None:
            found.append("autoscaling.weights: a new replica reads its weights once, whatever its ranks, and "
                         "shares the bandwidth with no other")
        if self._num_cut > 0:
            found.append(f"autoscaling.changes: {self._num_cut} orders had no effect, or a part of it: replicas of a "
                         "pool stay from min_replicas to max_replicas, and those that do not serve cannot be removed")
        return list(dict.fromkeys(found)) + (self._mediator.notes() if self._mediator is not None else [])

    # ---- inputs of a policy

    def _look(self, group, int64_t now_ns):
        """Bring the views of a group's gateways up to date."""
        cdef Gateway each
        for places in group.pools.values():
            each = places[0].gateway
            each.view.wants_counts = each.view.wants_levels = each.view.wants_times = True
            each.view.look(now_ns)

    def _queued(self, group):
        """Return the number of requests that wait at a group's gateway."""
        cdef Gateway gateway = group.gateway
        return gateway.num_queued

    def _read(self, group, pool, places):
        """Return states and accounts of some replicas of a pool, a row each."""
        cdef Place first = group.pools[pool][0]
        cdef Gateway gateway = first.gateway
        view_indices = [rank.view_index for place in places for rank in place.ranks]
        states, accounts = gateway.view.state_array[view_indices], gateway.view.account_array[view_indices]
        ranks = self._pools[pool].ranks
        return added_up(states, accounts, ranks) if ranks > 1 else (states, accounts)

    def _observe(self, group, finished, now_ns):
        self._look(group, now_ns)
        queued = self._queued(group)
        variants = tuple(self._variant(group, pool, places, now_ns) for pool, places in group.pools.items())
        if group.scrapes is None:
            group.samples.add(now_ns, queued + sum(int(each.accounts["in_flight"].sum()) for each in variants))
        ttft_ns = None
        if group.first_tokens is not None:
            if group.scrapes is None:
                group.first_tokens.look(now_ns)
            ttft_ns = self._ttft_ns(group, group.first_tokens.rows(now_ns))
        return Observation(now_ns, variants, queued if group.scrapes is None else group.scrapes.queued(now_ns),
                           finished.get(group.model, np.zeros(0, records.REQUEST)), ttft_ns, group.samples.at(now_ns))

    def _ttft_ns(self, group, rows):
        """Return the times to first token of the requests of `rows` that are or were at replicas of a group."""
        pools = [self._lifecycle.places[replica].pool if replica >= 0 else -1
                 for replica in self._requests["replica"][rows].tolist()]
        own = self._requests[rows[np.isin(pools, list(group.pools))]]
        return own["first_token_ns"] - own["arrival_ns"]

    def _variant(self, group, pool, places, now_ns):
        cdef Place first = places[0]
        serving = [place for place in places if is_open(place)]
        starting = sum(place.is_starting for place in places)
        plan = self._pools[pool]
        states, accounts = self._read(group, pool, serving)
        is_known = None
        if group.scrapes is not None:
            states, accounts, is_known = group.scrapes.seen(
                now_ns, [place.index for place in serving], states, accounts)
        return Variant(
            index=pool, name=plan.name, cost_per_hour=plan.cost_per_hour * plan.ranks,
            capacity_tokens=first.replica.rank.kv.num_blocks * first.replica.rank.kv.block_size * plan.ranks,
            role=plan.role, accelerators=plan.accelerators * plan.ranks, context_tokens=plan.max_model_len,
            starting=starting,
            room=len(self._vacant(places)), removable=self._removable(len(serving)),
            states=states, accounts=accounts, is_known=is_known)

    def _finished_rows(self):
        """Return the requests that left replicas since the last call, each once, if they were not sent again."""
        cdef int32_t i
        rows, self._finished.size = [self._finished.rows[i] for i in range(self._finished.size)], 0
        return [row for row in dict.fromkeys(rows) if self._requests["status"][row] >= records.COMPLETED]

    def _take_finished(self):
        """Return the requests that left replicas since the last decision, by the model of their pool.

        With [autoscaling.metrics], those that had left by the last scrape.
        """
        rows = self._finished_rows() if self._settings.metrics is None else self._scraped
        self._scraped = []
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
        group.pace.acted(changes)
        if self._mediator is not None:
            self._mediator.acted(changes)
        self._change(group, changes, now_ns)

    def _change(self, group, changes, now_ns):
        """Start and drain replicas, within the bounds on their number."""
        self._start(group, {pool: change for pool, change in changes.items() if change > 0}, now_ns)
        for pool, change in changes.items():
            if change < 0:
                serving = [place for place in group.pools[pool] if is_open(place)]
                for place in self._in_order(serving)[:min(-change, self._removable(len(serving)))]:
                    self._drain(place, now_ns)

    def _start(self, group, numbers, now_ns):
        """Start as many replicas of each pool, as far as there are places."""
        for pool, number in numbers.items():
            for place in self._vacant(group.pools[pool])[:number]:
                if group.scrapes is not None:
                    group.scrapes.forget(place.index)
                self._launch(place, now_ns)

    def _drain(self, place, now_ns):
        """Remove a replica once its requests are done, or have moved."""
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
        durations_ns = self.starts.durations_ns(place.pool, place.node)
        steps = list(zip((PROVISIONING, LOADING, WARMING), durations_ns, strict=True))
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
