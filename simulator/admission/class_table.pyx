"""Priority and target of each request's SLO class, looked up by the codes of the workload."""
cimport cython

from simulator.core.clock cimport NEVER_NS, ns_from_ms

import numpy as np

from simulator.domain.slo_classes import class_of, priority_of


@cython.final
cdef class ClassTable:
    """The SLO classes of a workload.

    workload : simulator.workload.base.Workload.
    classes : simulator.domain.slo_classes.SloClass by name; a missing class has the priority of its name.
    """

    def __cinit__(self, workload, classes):
        cdef const Demand[::1] demands = workload.demands
        cdef const int32_t[::1] priorities
        cdef const int64_t[::1] targets
        named = [class_of(name, classes) for name in (None, *workload.labels.get("slo_class", ()))]
        self.num_classes = len(named)
        self.priorities = np.array([priority_of(each) for each in named], np.int32)
        self.targets_ns = np.array([NEVER_NS if each.ttft_ms is None else ns_from_ms(each.ttft_ms) for each in named],
                                   np.int64)
        priorities, targets = self.priorities, self.targets_ns
        self.priority, self.target_ns = &priorities[0], &targets[0]
        self._owner = workload.demands
        if len(demands):
            self.demands = &demands[0]
