"""Base of all admission policies: whether a request is let in."""
from typing import Any

import msgspec


class AdmissionContext(msgspec.Struct, frozen=True):
    """Inputs of an admission policy, a gateway queue or a saturation detector.

    view : simulator.signals.view.View of the replicas behind the gate.
    workload : simulator.workload.base.Workload; only fields declared by clients may be read.
    classes : simulator.domain.slo_classes.SloClass by name: priority and targets of the SLO classes.
    num_slots : requests that the replicas behind the gate can run at once: the sum of their max_num_seqs.
    seed : of the experiment.
    stream : name of the random stream.
    make : called as `make(kind, section, context)`, builds the choice of a nested table: the class of a registry kind
        that its `policy` or `detector` names, with its `parameters`.
    assignment, views : of requests to instances of the gateway, routing.instances.base.Assignment, and the view of each
        instance; None and empty: there is one instance.
    """

    view: Any
    workload: Any
    classes: Any
    num_slots: int = 0
    make: Any = None
    seed: int = 0
    stream: str = "admission"
    assignment: Any = None
    views: tuple = ()


cdef class Admission:
    """Base of all admission policies; a policy overrides `admit`.

    A policy is built as `Policy(parameters, context)`, with its own frozen `Parameters` and an `AdmissionContext`.
    """

    def __cinit__(self, parameters, context, *_, **__):
        cdef const Request[::1] requests = context.workload.requests
        cdef const Demand[::1] demands = context.workload.demands
        self.view = context.view
        self.classes = ClassTable(context.workload, context.classes)
        self._owners = context.workload
        if len(requests):
            self.requests, self.demands = &requests[0], &demands[0]

    cdef int admit(self, int32_t row, int64_t now_ns) except -1 nogil:
        return 1

    cdef int sent(self, int32_t row, int64_t now_ns) except -1 nogil:
        return 0

    cdef int left(self, int32_t row, int64_t now_ns) except -1 nogil:
        return 0

    # The face for tests and exploration.

    def lets_in(self, row, now_ns):
        """Return whether a request is let in, as the engine calls it."""
        return bool(self.admit(row, now_ns))

    def note_sent(self, row, now_ns):
        """Notify the policy that a request was sent to a replica."""
        self.sent(row, now_ns)

    def note_left(self, row, now_ns):
        """Notify the policy that a request has left."""
        self.left(row, now_ns)
