"""One direction of a link over which blocks are copied: the base of all."""
from simulator.core.clock cimport NEVER_NS


cdef class Lane:
    """Base of all lanes; see lane.pxd for the contract.

    base_ns, per_block_ns : how long a copy takes that has the link to itself.
    """

    def __init__(self, double base_ns, double per_block_ns):
        self._base_ns, self._per_block_ns, self._next_end_ns = base_ns, per_block_ns, NEVER_NS

    cdef int begin(self, int32_t copy, int64_t num_blocks, int64_t now_ns) except -1 nogil:
        return 0

    cdef double busy_ns(self, int64_t num_copies, int64_t num_blocks) noexcept nogil:
        return self._per_block_ns * <double>num_blocks

    cdef int64_t end_ns(self, int32_t copy) except -2 nogil:
        return -1

    cdef int32_t take(self, int64_t until_ns) except -2 nogil:
        return -1

    cdef void clear(self) noexcept nogil:
        pass
