"""Host memory of one replica and levels below it, as BLIS models them."""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint64_t
cimport cython

from simulator.core.hash_map cimport HashMap
from simulator.core.row_list cimport RowList
from simulator.domain.request cimport Demand
from simulator.kv.chunk_store cimport ChunkStore
from simulator.kv.mirror cimport Mirror, Place, Wait
from simulator.kv.tiers.chunk_table cimport ChunkTable
from simulator.kv.tiers.station cimport Station


cdef enum Stage:                # of an episode
    LOOKS_UP = 0                # its level has a block that was not looked up before: the answer arrives a step later
    FETCHES = 1                 # its run is being read
    IS_OVER = 2                 # its run has arrived, or will not


cdef struct Episode:            # a wait of a request for a run
    int64_t since_ns
    uint64_t* hashes            # [count] the run
    int32_t count
    int32_t room                # hashes that fit before they must grow
    int32_t row
    int32_t following           # of an episode not in use: the next one; -1: none
    int16_t level               # that has the run; -1: another request's read is fetching it
    int8_t stage


@cython.final
cdef class Written(ChunkStore):
    """Blocks written to the levels, which lose none."""
    cdef HashMap levels_of              # hash -> bit i: level i has it; KNOWN: it has been looked up


@cython.final
cdef class HostChain(Mirror):
    cdef ChunkTable _table              # host memory: list 0 is idle, list 1 is written or read
    cdef readonly Station station
    cdef Written _written
    cdef HashMap _below                 # levels_of of `_written`
    cdef const Demand* _demands         # [row]
    cdef object _owner
    cdef double _block_bytes            # on all accelerators, for the counters
    cdef Episode* _episodes             # [_room]
    cdef int32_t _room
    cdef int32_t _free                  # first not in use; -1: none
    cdef HashMap _episode_of            # key_of(row) -> episode
    cdef RowList _underway              # episodes that are not over, in order of their requests' ids
    cdef Episode _run                   # the run being gathered
    cdef int64_t _now_ns
    cdef bint _is_due                   # the next step handles an episode, however soon it is
    cdef int64_t* _used                 # [num_levels] blocks there
    cdef int64_t* _refusals             # [num_levels] runs for which host memory had no room
    cdef readonly int64_t kept, refused, evicted, reloaded
    cdef readonly int64_t put_offs      # requests put off so far
    cdef int64_t _waited_ns             # their total wait

    cdef int32_t _level_of(self, uint64_t hash) noexcept nogil
    cdef void _unpin(self, int32_t element) noexcept nogil
    cdef int _evict(self, int64_t count) noexcept nogil
    cdef int _cascade(self, int32_t element, uint64_t hash) except -1 nogil
    cdef bint _promote(self, const Episode* run) except -1 nogil
    cdef int _take_written(self, int32_t job) except -1 nogil
    cdef void _take_read(self, int32_t job) noexcept nogil
    cdef Place _place_of_run(self, const Episode* run) noexcept nogil
    cdef int _go_on(self, Episode* episode) except -1 nogil
    cdef bint _is_known(self, const Episode* run) noexcept nogil
    cdef void _make_known(self, const Episode* run) noexcept nogil
    cdef int _open(self, int32_t row) except -1 nogil
    cdef int _close(self, int32_t row) except -1 nogil
    cdef int _grow(self) except -1 nogil
