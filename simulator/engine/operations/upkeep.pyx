"""Failures and autoscaling: the operations that add and remove replicas."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.event_queue cimport Event
from simulator.engine.operations.agenda cimport Agenda
from simulator.engine.fleet.events cimport ACTUATE, LIFECYCLE, OUTAGE, SCALE
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.operations.guards cimport Guards
from simulator.engine.operations.lifecycle cimport Lifecycle
from simulator.engine.operations.base cimport Operation
from simulator.engine.operations.outages cimport Outages
from simulator.engine.operations.scaling cimport Scaling

from simulator.domain.failures import Health
from simulator.engine.operations.restarts import Restarts


@cython.final
cdef class Upkeep(Operation):
    """Failures and autoscaling of one cluster, which share its Lifecycle.

    fleet, gateways, plan : arguments of all operations; the plan must keep journeys.
    failures : of domain.failures.Failure.
    health : domain.failures.Health; None: failures are detected at once.
    cooldown, breaker, retry : of domain.guards; None: there is none.
    autoscaling, autoscaler : domain.autoscaling.Autoscaling and the Autoscaler subclass; None: no autoscaling.
    """

    cdef readonly Lifecycle lifecycle
    cdef Fleet _fleet
    cdef Agenda _agenda
    cdef Outages _outages
    cdef Scaling _scaling               # None: no autoscaling
    cdef Guards _guards                 # None: no cooldowns and no breakers
    cdef bint _waits_before_retries
    cdef object _restarts               # Restarts; None: no rolling restarts
    cdef object _pools                  # their names
    cdef object _seed

    def __init__(self, Fleet fleet, gateways, plan, *, failures=(), health=None, autoscaling=None, autoscaler=None):
        self.kinds = (OUTAGE, LIFECYCLE, SCALE, ACTUATE)
        self._fleet = fleet
        self._agenda = Agenda(fleet)
        self.lifecycle = Lifecycle(fleet, gateways, plan.pools)
        self._pools, self._seed = [pool.name for pool in plan.pools], plan.seed
        self._outages = Outages(fleet, self._agenda, self.lifecycle, failures, health or Health(), self._pools,
                                plan.seed)
        if autoscaling is not None:
            self._scaling = Scaling(fleet, self._agenda, self.lifecycle, gateways, plan, autoscaling, autoscaler)

    def read_weights(self, weight_bytes):
        """Have a new replica of each pool read so many bytes from storage."""
        self._scaling.starts.weight_bytes = weight_bytes

    def guard(self, cooldown=None, breaker=None, retry=None):
        """Add a cooldown, breakers and waits before retries, each of domain.guards; None: there is none."""
        if cooldown is not None or breaker is not None:
            self._guards = Guards(self._fleet, self._agenda, self.lifecycle, cooldown, breaker)
        self._waits_before_retries = retry is not None
        if self._waits_before_retries:
            self._outages.wait_before_retries(retry)

    def restart(self, restarts):
        """Add rolling restarts, of domain.restarts.Restart."""
        self._restarts = Restarts(
            (self.lifecycle, self._agenda, self._outages, self._fleet.mover), restarts, self._pools, self._seed,
            None if self._scaling is None else self._scaling.starts, LIFECYCLE)
        if self._fleet.mover is not None:
            self._fleet.mover.mover.watchers.append(self._look_at)

    def fail(self, failure):
        """Let a further failure happen while the cluster runs; see `Outages.add`."""
        return self._outages.add(failure)

    def recover(self, source, at_ns):
        """End such a failure; see `Outages.recover`."""
        self._outages.recover(source, at_ns)

    def order(self, change):
        """Carry out a change of [[autoscaling.changes]] while the cluster runs."""
        self._scaling.order(change)

    def _look_at(self, replica, now_ns):
        self.lifecycle.look_at(replica, now_ns)

    cdef int start(self) except -1 nogil:
        with gil:
            self._outages.start()
            if self._restarts is not None:
                self._restarts.start()
            if self._scaling is not None:
                self._scaling.start()
        return 0

    cdef int handle(self, const Event* event) except -1 nogil:
        return self._agenda.act(event)

    cdef int ended(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil:
        if self._guards is not None:
            self._guards.ended(row, now_ns)
        if self._scaling is not None and self._scaling.wants_finished:
            self._scaling.note_finished(row)
        if self._waits_before_retries:
            with gil:
                self._outages.waits.pop(row, None)
        if self.lifecycle.num_draining > 0 and self._fleet.requests[row].replica >= 0:
            with gil:
                self.lifecycle.look_at(self._fleet.requests[row].replica, now_ns)
        return 0

    def taken_off(self, int32_t row, bint is_retried, int64_t now_ns):
        """See Operation."""
        if self._guards is not None:
            self._guards.loses(row, now_ns)

    def report(self, run):
        """See Operation."""
        run.lifecycle = self.lifecycle.table(run.clock_ns)
        run.diagnosis += self._outages.notes()
        if self._scaling is not None:
            run.diagnosis += self._scaling.notes()
