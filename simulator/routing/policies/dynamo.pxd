"""`dynamo`: the least cost of prefill that is left and blocks that are held, or nearly the least."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.core.tied_minima cimport TiedMinima
from simulator.routing.parts.kv_account cimport KvAccount
from simulator.routing.parts.output_blocks cimport OutputBlocks
from simulator.routing.parts.prefix_router cimport PrefixRouter
from simulator.routing.parts.session_bindings cimport SessionBindings


@cython.final
cdef class Dynamo(PrefixRouter):
    cdef double _credit, _host, _disk, _shared, _prefill, _request, _temperature, _decay
    cdef double _most_blocks, _most_tokens, _most_batches       # thresholds of busy replicas; infinity: none
    cdef int32_t _media             # bit m: a credit goes by medium m
    cdef bint _is_approximate
    cdef bint _remembers            # the prompts that it sent, for a time
    cdef bint _tracks_prefill
    cdef bint _ranks_loads          # loads order replicas that have no block of a prompt, for any prompt
    cdef readonly KvAccount account     # its own account; None: the replicas report their loads
    cdef OutputBlocks _outputs          # None: output blocks do not count
    cdef SessionBindings _bindings      # None: sessions are not bound
    cdef TiedMinima _loads          # [replica] its cost without a request; infinity: closed, or busy
    cdef TiedMinima _prefills       # [replica] tokens to prefill, infinity: closed, or busy; kept if credits decay
    cdef int32_t* _holders          # [num_replicas] scratch
    cdef int32_t* _live             # [num_replicas] blocks of the prompt that live requests have there; then scratch
    cdef int32_t* _known            # [medium x num_replicas] reported blocks, and predicted ones
    cdef const int32_t* _overlaps   # of request _row, as of the last decision; borrowed
    cdef int32_t _row               # -1: none

    # The most leading blocks of a prompt that are known to be at one replica; in tiers too, if they have a credit.
    cdef int32_t most_cached(self, int32_t row, int64_t now_ns) except -1 nogil

    # Bring the account up to an instant.
    cdef int update(self, int64_t now_ns) except -1 nogil

    cdef int32_t _pick_by_load(self, int32_t row, int64_t now_ns) except -3 nogil
    cdef int32_t _find_holders(self, const int32_t* overlaps) noexcept nogil
    cdef const int32_t* _look_up(self, int32_t row, int64_t now_ns) except NULL nogil
    cdef const int32_t* _with_predicted(self, const int32_t* reported, int32_t num_media) noexcept nogil
    cdef int64_t _cached(self, int32_t replica) noexcept nogil
    cdef int _take_loads(self, int64_t now_ns) except -1 nogil
    cdef bint _is_busy(self, int32_t replica) noexcept nogil
    cdef double _load(self, int32_t replica) noexcept nogil
    cdef double _credits(self, const int32_t* tiers) noexcept nogil
    cdef double _cost(self, int32_t row, int32_t replica, int32_t overlap, int32_t live, double credit) noexcept nogil

    # Tokens to prefill, and blocks in use, by its account, or as the replica reports.
    cdef int64_t _prefill_tokens(self, int32_t replica) noexcept nogil
    cdef int64_t _used_blocks(self, int32_t replica) noexcept nogil
