"""A copy in host memory of the blocks that a replica fills: what a KV cache and a scheduler of BLIS's ask of it."""
from libc.stdint cimport int32_t, int64_t, uint64_t

from simulator.kv.tier cimport KVTier


cdef enum Place:                # of a block, or of all of a run
    ABSENT = 0
    HELD = 1                    # in host memory
    COMING = 2                  # on the way there
    BELOW = 3                   # on a level below


cdef enum Wait:                 # of a request that needs blocks from below host memory
    NO_WAIT = 0
    IS_PUT_OFF = 1              # it is passed over
    WAS_PUT_OFF = 2             # they have come, or will not: it is admitted with what there is


cdef class Mirror(KVTier):
    cdef readonly int32_t block_size    # tokens
    cdef readonly bint when_full        # it is asked only where the KV cache has no room
    cdef readonly bint prompts_only     # blocks with outputs are not kept
    cdef readonly bint has_levels       # below host memory: what follows on runs is asked and told

    # Where a block with this hash is. It is taken back to the KV cache: it stays there, as the last to go.
    cdef Place place_of(self, uint64_t hash) noexcept nogil
    cdef void reload(self, uint64_t hash) noexcept nogil

    # A block with this hash is held by somebody who runs: it is there from now on, the last to go.
    cdef int keep(self, uint64_t hash) except -1 nogil

    # How long the iteration that begins waits for what was reloaded.
    cdef int64_t take_waiting_ns(self) noexcept nogil

    # ---- runs: blocks that follow one another in a prompt, and come from one level

    # A run begins with a block that is coming or below; does another block come with it?
    cdef int begin_run(self, uint64_t hash) except -1 nogil
    cdef bint extend_run(self, uint64_t hash) except -1 nogil

    # The run is fetched, for whoever needs it later; or a request that is not admitted before it has come.
    cdef int fetch(self) except -1 nogil
    cdef int put_off(self, int32_t row) except -1 nogil

    # Does a request wait for a run? It is admitted.
    cdef Wait wait_of(self, int32_t row) noexcept nogil
    cdef int was_served(self, int32_t row) except -1 nogil

    # Once an iteration, when those that run have been served: see who need not wait any longer.
    cdef int look_again(self) except -1 nogil

    # ---- one that moves blocks: it takes those over that nobody holds, each under its number in the KV cache

    cdef readonly bint moves            # it keeps nothing of those who run; of the above it gives waiting times alone

    # Does it take another one while so many of the blocks of the KV cache are held? It takes this one.
    cdef bint takes(self, int32_t held, int32_t num_blocks) noexcept nogil
    cdef int take(self, int32_t block, uint64_t hash) except -1 nogil

    # The first number above this one under which it has a block; 0: there is none. The hash of that; it is given back.
    cdef int32_t next_taken(self, int32_t block) noexcept nogil
    cdef uint64_t hash_of(self, int32_t block) noexcept nogil
    cdef void give_back(self, int32_t block) noexcept nogil
