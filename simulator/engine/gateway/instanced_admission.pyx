"""Admission by several instances of a gateway, each with a policy of its own."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.admission.base cimport Admission
from simulator.routing.instances.base cimport Assignment

import msgspec
from msgspec.structs import replace


class InstancedPolicy(msgspec.Struct, frozen=True):
    """Parameters of `InstancedAdmission`.

    policy, parameters : of each instance, an Admission subclass and its `Parameters`.
    """

    policy: type
    parameters: object


@cython.final
cdef class InstancedAdmission(Admission):
    """Asks the policy of the instance that a request went to.

    Buckets and counts are of one instance alone.

    parameters : InstancedPolicy. context : AdmissionContext with `assignment` and `views`.
    """

    cdef readonly list policies         # Admission of each instance
    cdef void** _policies               # the same, borrowed
    cdef Assignment _assignment

    def __init__(self, parameters, context):
        self.policies, self._assignment = [], context.assignment
        self._policies = <void**>calloc(len(context.views), sizeof(void*))
        if self._policies == NULL:
            raise MemoryError()
        for i, view in enumerate(context.views):
            stream = context.stream if i == 0 else f"{context.stream} of gateway {i}"
            policy = parameters.policy(parameters.parameters, replace(context, view=view, stream=stream))
            view.pass_on_wants()
            self.policies.append(policy)
            self._policies[<int32_t>i] = <void*>(<Admission>policy)
        self.reads_state = self.policies[0].reads_state

    def __dealloc__(self):
        free(self._policies)

    cdef int admit(self, int32_t row, int64_t now_ns) except -1 nogil:
        return (<Admission>self._policies[self._assignment.of(row)]).admit(row, now_ns)

    cdef int sent(self, int32_t row, int64_t now_ns) except -1 nogil:
        return (<Admission>self._policies[self._assignment.of(row)]).sent(row, now_ns)

    cdef int left(self, int32_t row, int64_t now_ns) except -1 nogil:
        return (<Admission>self._policies[self._assignment.of(row)]).left(row, now_ns)
