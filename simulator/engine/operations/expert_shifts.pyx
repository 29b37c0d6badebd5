"""Experts with changing load: popularity drifts, and a balancer moves and copies experts.

A latency model is a function of the batch alone, and is evaluated ahead of time. So a change that depends on the number
of iterations takes effect by events: a replica has a model of its present arrangement, and gets that of the next one
between the iteration before the change and the first after it. That instant is not known in advance, but iterations
have a shortest time, of which half is assumed: after it, times the number of missing iterations, the replica is checked
again, the more often the nearer the change is. The times of checks depend on the iterations begun by then alone, not
on runs ahead. Two batches in flight may begin at one instant; then the change is one iteration late.

Ranks in lock step change together. Dummy steps count too: vLLM's ranks count each step, so
that they rearrange together. Source: vLLM 0.32.0, vllm/distributed/eplb/eplb_state.py, EplbState.step.
"""
from libc.stdint cimport int64_t
cimport cython

from simulator.core.event_queue cimport Event
from simulator.domain.replica_state cimport ReplicaState
from simulator.engine.fleet.events cimport SHIFT
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.operations.agenda cimport Agenda
from simulator.engine.operations.base cimport Operation
from simulator.engine.replica.observation cimport observe
from simulator.engine.replica.replica cimport Replica
from simulator.latency.base cimport LatencyModel

from functools import partial

from simulator.engine.operations.shift_plan import Models
from simulator.engine.operations.stalled import Stalled

SAFETY = 0.5            # factor on the time of one token: no iteration is assumed to be shorter


@cython.final
cdef class ExpertShifts(Operation):
    """Changes of the expert arrangements of all replicas.

    fleet, gateways, plan : arguments of all operations.
    shifts : ShiftPlan of each pool, or None.
    """

    cdef Fleet _fleet
    cdef Agenda _agenda
    cdef list _followers, _pools

    def __init__(self, Fleet fleet, gateways, plan, shifts):
        self.kinds = (SHIFT,)
        self._fleet, self._agenda = fleet, Agenda(fleet)
        self._followers, self._pools = [], []
        first = 0
        for pool, shift in zip(plan.pools, shifts, strict=True):
            if shift is not None:
                models = Models(shift, pool.latency)
                self._pools.append((pool.name, models))
                num_alike = pool.ranks if pool.is_in_lock_step else 1  # ranks in lock step: one represents all
                self._followers += [Follower(fleet, self._agenda, replica, shift, models)
                                    for replica in fleet.replicas[first:first + pool.places:num_alike]]
            first += pool.places

    cdef int start(self) except -1 nogil:
        with gil:
            for follower in self._followers:
                follower.await_next(0)
        return 0

    cdef int handle(self, const Event* event) except -1 nogil:
        return self._agenda.act(event)

    def report(self, run):
        """See Operation."""
        for name, models in self._pools:
            found = list(models.imbalances.values())
            changes = sum(each.num_changes for each in self._followers if each.models is models)
            note = (f"experts: loads changed {changes} times in all replicas together, over {len(found)} arrangements; "
                    f"of infinitely many tokens the busiest rank has {min(found):.3f} to {max(found):.3f} times the "
                    f"mean to do, {found[0]:.3f} at first")
            run.diagnosis.append(note if len(self._pools) == 1 else f"pool {name}: {note}")
            models.add_to(run.latency.get(name, run.latency), run.diagnosis)


cdef class Follower:
    """The changes of one replica, or of ranks in lock step with it."""

    cdef Fleet _fleet
    cdef Agenda _agenda
    cdef Replica _replica
    cdef object _shift
    cdef readonly object models         # Models of the pool
    cdef readonly int64_t num_changes
    cdef object _now                    # Arrangement in force: not the newest while weights are still in transfer
    cdef int64_t _step                  # iteration at which the last change began
    cdef int64_t _resume_step           # iteration at which a stall ends; < 0: none
    cdef int64_t _floor_ns              # lower bound on iterations in flight and to come
    cdef int64_t _last_floor_ns         # lower bound on iterations to come

    def __init__(self, Fleet fleet, Agenda agenda, Replica replica, shift, models):
        self._fleet, self._agenda, self._replica, self._shift, self.models = fleet, agenda, replica, shift, models
        self._now, self._resume_step = shift.timeline.arrangement(0), -1
        self._floor_ns = self._last_floor_ns = floor_ns(replica.latency)

    def await_next(self, int64_t now_ns):
        """Schedule a check for the time when the next change may be due."""
        cdef int64_t due = self._due(), missing
        if due >= 0:
            missing = max(due - self._begun(now_ns), <int64_t>1)
            self._agenda.tick(now_ns + missing * self._floor_ns, SHIFT, self._look)

    def _look(self, int64_t now_ns):
        while 0 <= self._due() <= self._begun(now_ns):
            self._change(self._due(), now_ns)
        self.await_next(now_ns)

    cdef int64_t _due(self) except -2:
        """Return the iteration at which the next change begins; -1: none."""
        step = self._shift.timeline.next_change(self._step)
        if self._resume_step >= 0:
            return self._resume_step if step is None else min(self._resume_step, step)
        return -1 if step is None else step

    cdef int64_t _begun(self, int64_t now_ns) except -1:
        cdef ReplicaState state
        if self._replica.lock_step is not None:
            return self._replica.lock_step.num_begun(now_ns)
        observe(self._replica, now_ns, &state)
        return state.iterations

    cdef int _change(self, int64_t step, int64_t now_ns) except -1:
        if step == self._resume_step:
            self._resume_step = -1
            self._set(self.models.of(self._now), now_ns)
        before, after = (self._shift.timeline.arrangement(each) for each in (self._step, step))
        self._step = step
        if after.draw != before.draw:
            self._arrange(self._now._replace(draw=after.draw), now_ns)
        if after.rearrangements != before.rearrangements:
            moving_ns = self._shift.moving_ns(after.rearrangements)
            if self._shift.use_async:
                self._agenda.tick(now_ns + moving_ns, SHIFT, partial(self._settle, after.rearrangements))
            else:
                self._arrange(self._now._replace(rearrangements=after.rearrangements), now_ns)
                self._set(Stalled(self.models.of(self._now), moving_ns), now_ns)
                self._resume_step = step + 1
        return 0

    def _settle(self, rearrangements, int64_t now_ns):
        """Put an arrangement in force after its weights have arrived."""
        self._arrange(self._now._replace(rearrangements=rearrangements), now_ns)

    cdef int _arrange(self, arrangement, int64_t now_ns) except -1:
        self.models.change(self._now, arrangement)
        self._now = arrangement
        self.num_changes += 1
        return self._set(self.models.of(arrangement), now_ns)

    cdef int _set(self, LatencyModel latency, int64_t now_ns) except -1:
        cdef int64_t next_ns = floor_ns(latency)
        self._floor_ns, self._last_floor_ns = min(self._last_floor_ns, next_ns), next_ns
        self._replica.set_latency(latency, now_ns)
        self._fleet.touched(self._replica.index)
        return 0


def floor_ns(LatencyModel latency):
    """Return a time that iterations are taken not to fall short of."""
    latency.count(0, False)
    shortest = min(latency.predict_iteration_ns(decode=[1]), latency.predict_iteration_ns(prefill=[(1, 0)]))
    latency.count(1, False)
    return max(int(shortest * SAFETY), 1)
