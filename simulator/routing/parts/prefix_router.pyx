"""Base of routers that remember which prompts they sent where."""
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from typing import Annotated

from msgspec import Meta

from simulator.core.clock cimport ns_from_s
from simulator.routing.parts.pick cimport pick_highest

Capacity = Annotated[int, Meta(ge=1, le=2**30, description=(
    "blocks that the router remembers of each replica, the latest sent there"))]
BlockTokens = Annotated[int, Meta(ge=0, le=2**20, description=(
    "tokens of a remembered block; llm-d: 64 at least, whatever the block of the engine; 0: the block of the engine"))]


cdef class PrefixRouter(Router):
    """Base of routers that remember `capacity_blocks` blocks of each replica.

    Parameters with a `ttl_s` above 0 limit the time, too.
    """

    def __cinit__(self, parameters, context, *_, **__):
        self.index = PrefixIndex(context, parameters.capacity_blocks,
                                 counts_rest=getattr(parameters, "counts_rest", False),
                                 ttl_ns=ns_from_s(getattr(parameters, "ttl_s", 0.0)))
        self.matched = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
        self.preference = <double*>calloc(self.num_replicas, sizeof(double))
        if self.matched == NULL or self.preference == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.matched)
        free(self.preference)

    cdef int32_t pick_preferred(self) noexcept nogil:
        return pick_highest(self.preference, self.num_replicas, self.draws)

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        self.index.touch(row, replica)
        return 0

    cdef int closed(self, int32_t replica, int64_t now_ns) except -1 nogil:
        self.index.forget(replica)
        return 0
