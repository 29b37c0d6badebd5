"""Requests that left their replicas, ask for a KV transfer or have a first token, until the cluster is notified."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.row_list cimport RowList, add_row


@cython.final
cdef class Departures:
    cdef int32_t* _rows         # [_size] in the order in which they left; NULL: not kept
    cdef int64_t _size
    cdef int64_t _taken         # number of leading rows that were taken out
    cdef int64_t _room          # for each request to leave once, and to be reported twice before that
    cdef public bint reports_prefills   # a request with its first token is listed, too: as -1 - row

    cdef int64_t turn_ns        # the last instant at which a replica acted
    cdef int32_t turn           # replicas below it have already acted at turn_ns; the others have not
    cdef RowList turns          # the replicas that acted at this instant, in order; a replica may be woken to act again

    # Note that a replica acts.
    cdef inline int note_turn(self, int32_t replica, int64_t now_ns) except -1 nogil:
        if now_ns != self.turn_ns:
            self.turn_ns = now_ns
            self.turn = self.turns.size = 0
        self.turn = max(self.turn, replica + 1)
        return add_row(&self.turns, replica)

    # A replica was woken after `num_turns` turns at this instant: return whether it has acted since. Lowest acts first.
    cdef inline bint had_turn(self, int32_t replica, int32_t num_turns) noexcept nogil:
        cdef int32_t i
        for i in range(num_turns, self.turns.size):
            if self.turns.rows[i] >= replica:
                return True
        return False

    # Return the instant up to which a replica has acted at `now_ns`, exclusive; also in the middle of a run.
    cdef inline int64_t acted_until_ns(self, int32_t replica, int64_t now_ns) noexcept nogil:
        return now_ns + (now_ns == self.turn_ns and replica < self.turn)

    cdef inline bint any(self) noexcept nogil:
        return self._size > 0

    cdef inline void add(self, int32_t row) noexcept nogil:
        if self._rows != NULL:
            self._rows[self._size] = row
            self._size += 1

    # Take out the row that left first; there must be one.
    cdef inline int32_t take(self) noexcept nogil:
        cdef int32_t row = self._rows[self._taken]
        self._taken += 1
        if self._taken == self._size:
            self._taken = self._size = 0
        return row
