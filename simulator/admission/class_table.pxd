"""Priority and target of each request's SLO class."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.domain.request cimport Demand


@cython.final
cdef class ClassTable:
    cdef readonly int32_t num_classes   # names in the workload and, first, that of requests without one
    cdef readonly object priorities     # int32 [class] the highest is the most urgent; below 0 may be shed
    cdef readonly object targets_ns     # int64 [class] target of the time to first token; NEVER_NS: none
    cdef const int32_t* priority        # data of `priorities`
    cdef const int64_t* target_ns
    cdef const Demand* demands          # [row] borrowed from the workload
    cdef object _owner

    # The class of request `row`, an index of the arrays above.
    cdef inline int32_t class_of(self, int32_t row) noexcept nogil:
        return self.demands[row].slo_class + 1

    cdef inline int32_t priority_of(self, int32_t row) noexcept nogil:
        return self.priority[self.demands[row].slo_class + 1]

    cdef inline bint is_sheddable(self, int32_t row) noexcept nogil:
        return self.priority_of(row) < 0
