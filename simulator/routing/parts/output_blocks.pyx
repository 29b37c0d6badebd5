"""Output blocks in a router's account of its replicas: one for each whole block of tokens streamed back.

Source of the rules: decisions of ai-dynamo-runtime 1.6.1, `SelectionService`, recorded and explained in formulas.
"""
from libc.stdlib cimport free, malloc
cimport cython

from simulator.core.index_list cimport NONE, new_list


@cython.final
cdef class OutputBlocks:
    """Output blocks of the live requests of the replicas of a view, none at first.

    A block of a request with a predicted output length weighs 1 - generated / predicted tokens, at least 0, and so do
    all blocks of the request then that no other request at the replica has.

    context : simulator.routing.base.RoutingContext. blocks : LiveBlocks of its replicas.
    """

    def __cinit__(self, context, LiveBlocks blocks):
        cdef const Demand[::1] demands = context.workload.demands
        cdef int32_t i
        self._view, self._num_replicas = context.view, context.view.num_replicas
        self._blocks, self._counts = blocks, context.outputs or OutputCounts(context.workload.requests)
        self._counts.is_requested = True
        self._owner, self._demands = context.workload, &demands[0] if len(demands) else NULL
        self._links = IndexLinks(len(demands))
        self._live = <IndexList*>malloc(self._num_replicas * sizeof(IndexList))
        if self._live == NULL:
            raise MemoryError()
        for i in range(self._num_replicas):
            self._live[i] = new_list()

    def __dealloc__(self):
        free(self._live)

    cdef void sent(self, int32_t row, int32_t replica) noexcept nogil:
        self._links.push_back(&self._live[replica], row)

    cdef void left(self, int32_t row, int32_t replica) noexcept nogil:
        if self._links.is_linked(row):
            self._links.remove(&self._live[replica], row)

    cdef int note(self, int32_t replica, int64_t now_ns) except -1 nogil:
        self._counts.look(now_ns)
        return self._count(replica)

    cdef int note_all(self, int64_t now_ns) except -1 nogil:
        cdef int32_t replica
        self._counts.look(now_ns)
        for replica in range(self._num_replicas):
            self._count(replica)
        return 0

    cdef int _count(self, int32_t replica) except -1 nogil:
        cdef int32_t row = self._live[replica].head, outputs, generated
        cdef double weight
        while row != NONE:
            outputs = self._counts.outputs(row)
            generated = (self._blocks.num_outputs(row) + 1) * self._blocks.block_size
            while generated <= outputs:
                weight = -1.0
                if self._demands[row].expected_tokens >= 0:
                    weight = max(1.0 - <double>generated / max(self._demands[row].expected_tokens, 1), 0.0)
                self._blocks.add_output(row, replica, weight)
                self._view.mark(replica)
                generated += self._blocks.block_size
            row = self._links.next(row)
        return 0
