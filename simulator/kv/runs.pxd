"""The blocks of shared text of a cache, as runs: blocks in a row that are treated alike.

A run is an element of `Stretches`, listed in the prefix cache under the name of its first block: blocks `begin` ..
`end` - 1 of a text, held by the same sequences. In the queue of free blocks its last block comes first, as vLLM frees
the tail of a text first; so reuse makes a run shorter at its end. A lookup that needs a part of a run splits it. Its
text is a list of pieces (see text_pieces.pxd), so a lookup compares pieces and not blocks.

The runs with the name of one block are a ring, in the order in which they were cached: copies of one text up to the
same block, their *reach*, or shorter where blocks were reused. So a block is in the runs of one ring alone: a lookup
finds the first of its runs that still has the block, as vLLM finds the copy that was cached first.

The texts in a cache have no holes: a sequence holds all blocks in front of its blocks and frees them later. So where a
block cannot be found no later block of the text can be, and text behind the only copy of a block that no other
sequence ever held is new. Caches that lose blocks otherwise (BLIS, holds for programs) list each block by itself.

    blocks of the text      0  1  2  3  4  5  6  7  8  9
    A computes ten          [............ A ............]
    B needs the first six   [..... A, B .....][... A ...]      one split; A still has both, by `sibling`
    B goes on with its own                    [..... B ....    of another name
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.kv.stretches cimport Stretches
from simulator.kv.text_pieces cimport Place, TextPieces


cdef struct Hit:                # blocks up to `end` were found in a run
    int32_t element
    int32_t end


cdef struct Start:              # of a piece
    uint64_t stem
    int32_t block               # its first one, of the run
    int32_t tokens              # of its stream up to the end of that block


cdef struct Outline:            # of a run: its text up to its reach
    Start* starts               # [count]
    int32_t count
    int32_t room


cdef struct Chain:              # of a sequence: its blocks of shared text
    Place place                 # the piece of the last block, or of one behind it
    int32_t* runs               # [room] elements, in the order of the text. Where one was split since, its parts up
                                # to the begin of the next belong to it
    int32_t count
    int32_t room


@cython.final
cdef class Runs:
    cdef Stretches _queue
    cdef TextPieces _texts
    cdef int32_t _block_size
    cdef int32_t _ahead
    cdef int32_t free_hits      # blocks of the last lookup that are in the queue
    cdef Hit* _hits             # [_num_hits] of the last lookup, in the order of the text
    cdef int32_t _num_hits
    cdef int32_t _room_hits
    cdef Place _place           # behind them
    cdef int32_t* _parts        # [_room_parts] of a run that was split
    cdef int32_t _room_parts
    cdef Outline* _outlines     # [element below _num_outlines]
    cdef int32_t _num_outlines

    # Find the first blocks of the text of request `row`, `most` at most: return their number.
    cdef int32_t find(self, int32_t row, int32_t most) except -1 nogil

    # A sequence that holds no block holds all blocks of the last lookup.
    cdef int take(self, Chain* chain) except -1 nogil

    # A sequence has cached blocks begin .. end - 1 of its text, behind those that it holds.
    cdef int insert(self, int32_t row, int32_t begin, int32_t end, Chain* chain) except -1 nogil

    # A sequence holds its first `end` blocks, all that it has, no longer: return how many are free now.
    cdef int32_t release(self, Chain* chain, int32_t end) except -1 nogil

    # Blocks begin .. `most` - 1 of a text, as far as they are those of a run that begins with them.
    cdef int32_t _common(self, int32_t row, int32_t element, int32_t begin, int32_t most, Place* place) noexcept nogil

    # Let a new ring begin at block `at` of the runs of a ring.
    cdef int _split_ring(self, int32_t element, int32_t at) except -1 nogil

    # List a new run of blocks begin .. end - 1 with these pieces as the last of a chain.
    cdef int _add(self, Chain* chain, const Start* starts, int32_t count, int32_t begin, int32_t end) except -1 nogil

    cdef int32_t _find_in_ring(self, int32_t first, int32_t begin, int32_t most) except -1 nogil
    cdef int _note_hit(self, int32_t element, int32_t end) except -1 nogil
    cdef uint64_t _name(self, const Start* start, int32_t block) noexcept nogil
    cdef int _have_outline(self, int32_t element, int32_t count) except -1 nogil
    cdef int _split(self, int32_t element, int32_t at) except -1 nogil
    cdef int32_t _join(self, int32_t row, int32_t begin, int32_t end, Chain* chain) except -1 nogil
    cdef int _grow(self, int32_t row, int32_t begin, int32_t end, Chain* chain) except -1 nogil
    cdef bint _may_grow(self, const Chain* chain, int32_t begin) noexcept nogil
    cdef int32_t _gather_parts(self, int32_t element, int32_t end) except -1 nogil
