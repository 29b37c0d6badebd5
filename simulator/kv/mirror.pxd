"""A copy in host memory of the blocks that a replica fills: its interface to BLIS's KV cache and scheduler."""
from libc.stdint cimport int32_t, int64_t, uint64_t

from simulator.kv.tier cimport KVTier


cdef enum Place:                # of a block, or of the whole of a run
    ABSENT = 0
    HELD = 1                    # in host memory
    COMING = 2                  # on the way there
    BELOW = 3                   # on a lower level


cdef enum Wait:                 # of a request that needs blocks from levels below host memory
    NO_WAIT = 0
    IS_PUT_OFF = 1              # passed over
    WAS_PUT_OFF = 2             # its blocks have arrived, or will not: it is admitted with the blocks there are


cdef class Mirror(KVTier):
    cdef readonly int32_t block_size    # tokens
    cdef readonly bint when_full        # the KV cache asks it only when it has no room
    cdef readonly bint prompts_only     # blocks with outputs are not kept
    cdef readonly bint has_levels       # there are levels below host memory: the functions for runs are in use

    # Return where a block with this hash is. Copy it back to the KV cache: it stays here, too, as the last to go.
    cdef Place place_of(self, uint64_t hash) noexcept nogil
    cdef void reload(self, uint64_t hash) noexcept nogil

    # A running sequence holds a block with this hash: it is here from now on, as the last to go.
    cdef int keep(self, uint64_t hash) except -1 nogil

    # Return how long the iteration that begins waits for reloaded blocks, and reset it.
    cdef int64_t take_waiting_ns(self) noexcept nogil

    # ---- runs: blocks that follow one another in a prompt, and are read from one level together

    # Begin a run with a block that is coming or below. Add the next block; False: it is not part of the run.
    cdef int begin_run(self, uint64_t hash) except -1 nogil
    cdef bint extend_run(self, uint64_t hash) except -1 nogil

    # Fetch the run for later requests. Put a request off until the run has arrived.
    cdef int fetch(self) except -1 nogil
    cdef int put_off(self, int32_t row) except -1 nogil

    # Return whether a request waits for a run. The request is admitted.
    cdef Wait wait_of(self, int32_t row) noexcept nogil
    cdef int was_served(self, int32_t row) except -1 nogil

    # Once per iteration, after the running sequences were served: find the requests that need not wait any longer.
    cdef int look_again(self) except -1 nogil

    # ---- a mirror that moves blocks: it takes free blocks, each under its index in the KV cache

    cdef readonly bint moves            # it copies no blocks in use; above only take_waiting_ns has an effect

    # Does it accept another block while `held` blocks of the KV cache are in use? Accept this block.
    cdef bint takes(self, int32_t held, int32_t num_blocks) noexcept nogil
    cdef int take(self, int32_t block, uint64_t hash) except -1 nogil

    # The first index above `block` under which it has a block; 0: there is none. The hash of a block. Give it back.
    cdef int32_t next_taken(self, int32_t block) noexcept nogil
    cdef uint64_t hash_of(self, int32_t block) noexcept nogil
    cdef void give_back(self, int32_t block) noexcept nogil
