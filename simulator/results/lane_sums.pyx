"""Sums over the iterations of replicas, row by row in the order of /iterations."""
from libc.math cimport NAN
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free
cimport cython

from simulator.core.memory cimport resize
from simulator.core.heap cimport RowHeap, first_ns, pop_row, push_row

import numpy as np

cdef int64_t LAST_NS = (1 << 63) - 1

cdef enum:
    MOST_VALUES = 4             # of a row
    REPLICA_SHIFT = 31          # an end in the heap: replica << 31 | place
    FIRST_ROOM = 64
    NOWHERE = -1


cdef struct Row:                # of an unfinished iteration
    int64_t end_ns
    int64_t values[MOST_VALUES]
    int32_t next_free           # place of another free row; NOWHERE
    bint is_followed            # the replica continues without a pause


@cython.final
cdef class Means:
    """Means of values over bins of time, replica by replica.

    Time without iterations counts as 0. The sums equal those of `numpy.cumsum` over the rows of a replica.

    edges_ns : int64 (bins + 1,), rising.
    """
    cdef const int64_t[::1] _edges_ns
    cdef int32_t _num_values
    cdef int64_t[::1] _begin_ns, _duration_ns       # [replicas] of the last row
    cdef int32_t[::1] _next                         # [replicas] edge that is not passed yet
    cdef double[:, ::1] _until, _weight             # [replicas, values] before the last row; of it
    cdef double[:, ::1] _at_edge                    # [replicas, values] at the edge that was passed last
    cdef double[:, :, ::1] _means                   # [values, replicas, bins]

    def __init__(self, const int64_t[::1] edges_ns not None, int64_t num_replicas, int32_t num_values):
        shape = (num_replicas, num_values)
        self._edges_ns, self._num_values = edges_ns, num_values
        self._begin_ns, self._duration_ns = np.zeros(num_replicas, np.int64), np.zeros(num_replicas, np.int64)
        self._next = np.zeros(num_replicas, np.int32)
        self._until, self._weight, self._at_edge = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self._means = np.zeros((num_values, num_replicas, len(edges_ns) - 1))

    def take(self, const int32_t[::1] replica not None, const int64_t[::1] begin_ns not None,
             const int64_t[::1] duration_ns not None, const double[:, ::1] values not None):
        """Take rows, of each replica in order; (rows, values) hold while the row's iteration runs."""
        cdef int64_t i
        cdef int32_t row, value
        with nogil:
            for i in range(len(replica)):
                row = replica[i]
                self._pass(row, begin_ns[i])
                self._begin_ns[row], self._duration_ns[row] = begin_ns[i], duration_ns[i]
                for value in range(self._num_values):
                    self._until[row, value] += self._weight[row, value]
                    self._weight[row, value] = <double>duration_ns[i] * values[i, value]

    def means(self):
        """Return (values, replicas, bins); to be called once, at the end."""
        cdef int64_t row, last_ns = self._edges_ns[len(self._edges_ns) - 1]
        for row in range(len(self._next)):
            self._pass(row, last_ns + 1)
        return np.asarray(self._means)

    cdef void _pass(self, int64_t row, int64_t until_ns) noexcept nogil:
        """Process the edges before an instant; the last row is the last to begin before them."""
        cdef int32_t edge = self._next[row], value
        cdef int64_t width_ns
        cdef double done, at
        while edge < len(self._edges_ns) and self._edges_ns[edge] < until_ns:
            done = (<double>(self._edges_ns[edge] - self._begin_ns[row])
                    / <double>max(self._duration_ns[row], 1))
            done = min(max(done, 0.0), 1.0)
            width_ns = self._edges_ns[edge] - self._edges_ns[edge - 1] if edge > 0 else 1
            for value in range(self._num_values):
                at = self._until[row, value] + done * self._weight[row, value]
                if edge > 0:
                    self._means[value, row, edge - 1] = (at - self._at_edge[row, value]) / <double>width_ns
                self._at_edge[row, value] = at
            edge += 1
        self._next[row] = edge


@cython.final
cdef class Totals:
    """Values summed over replicas, at each event.

    That is: an iteration is scheduled, or a replica falls idle and counts 0 from then on.

    num_events : number of events so far.
    is_ordered : rows were in order of `start_ns`.
    peaks, peak_times_s : the greatest total of each value, and when it was first reached.
    first_s, lows, highs : of each column of pixels, when its first event was; the extremes of each value. NaN: none.
    at_s, looks : instants, rising, and the totals at each: (instants, values).
    raw_s, raw : the first events and totals, up to the room for them.

    edges_s : where columns begin, rising, the first at the first event.
    """
    cdef readonly int64_t num_events
    cdef readonly bint is_ordered
    cdef int32_t _num_values
    cdef int64_t _last_ns
    cdef int64_t _now[MOST_VALUES]
    cdef int64_t _peaks[MOST_VALUES]
    cdef double _peak_s[MOST_VALUES]
    cdef const double[::1] _edges_s, _at_s
    cdef double[::1] _first_s, _raw_s
    cdef int64_t[:, ::1] _lows, _highs, _looks, _raw
    cdef int64_t _column, _look
    cdef int32_t[::1] _current                      # [replicas] place of its last row; NOWHERE: it is over
    cdef RowHeap _ends
    cdef Row* _rows                                 # [_room]
    cdef int32_t _free                              # place of the first free row; NOWHERE
    cdef int32_t _room

    def __init__(self, const double[::1] edges_s not None, const double[::1] at_s not None, int64_t num_raw,
                 int64_t num_replicas, int32_t num_values):
        if not 0 < num_values <= MOST_VALUES:
            raise ValueError(f"{num_values} values: expected 1 to {MOST_VALUES}")
        columns = len(edges_s)
        self.is_ordered, self._num_values = True, num_values
        self._edges_s, self._at_s, self._column = edges_s, at_s, NOWHERE
        self._first_s = np.full(columns, NAN)
        self._lows, self._highs = np.zeros((columns, num_values), np.int64), np.zeros((columns, num_values), np.int64)
        self._looks = np.zeros((len(at_s), num_values), np.int64)
        self._raw_s, self._raw = np.zeros(num_raw), np.zeros((num_raw, num_values), np.int64)
        self._current = np.full(num_replicas, NOWHERE, np.int32)
        self._free = NOWHERE

    def __dealloc__(self):
        free(self._ends.entries)
        free(self._rows)

    def take(self, const int32_t[::1] replica not None, const int64_t[::1] start_ns not None,
             const int64_t[::1] begin_ns not None, const int64_t[::1] duration_ns not None,
             const int32_t[:, ::1] values not None):
        """Take rows in order of `start_ns`; (rows, values) hold from then on."""
        cdef int64_t i
        for i in range(len(replica)):
            if start_ns[i] < self._last_ns:
                self.is_ordered = False
                return
            self._last_ns = start_ns[i]
            while self._ends.size > 0 and first_ns(&self._ends) < start_ns[i]:
                self._end_first()
            self._begin(replica[i], start_ns[i], begin_ns[i], duration_ns[i], &values[i, 0])

    def end(self):
        """Let all iterations end; to be called once."""
        while self._ends.size > 0:
            self._end_first()
        self._look_before(LAST_NS)

    @property
    def peaks(self):
        return [self._peaks[value] for value in range(self._num_values)]

    @property
    def peak_times_s(self):
        return [self._peak_s[value] for value in range(self._num_values)]

    @property
    def first_s(self):
        return np.asarray(self._first_s)

    @property
    def lows(self):
        return np.asarray(self._lows)

    @property
    def highs(self):
        return np.asarray(self._highs)

    @property
    def looks(self):
        return np.asarray(self._looks)

    @property
    def raw_s(self):
        return np.asarray(self._raw_s)

    @property
    def raw(self):
        return np.asarray(self._raw)

    cdef int _begin(self, int32_t replica, int64_t start_ns, int64_t begin_ns, int64_t duration_ns,
                    const int32_t* values) except -1:
        cdef int32_t before = self._current[replica], place, value
        cdef bint goes_on = before != NOWHERE and begin_ns <= self._rows[before].end_ns
        self._look_before(start_ns)
        if goes_on:
            self._rows[before].is_followed = True
        if self._free == NOWHERE:
            self._grow()
        place = self._free
        self._free = self._rows[place].next_free
        self._current[replica] = place
        self._rows[place].end_ns, self._rows[place].is_followed = begin_ns + duration_ns, False
        for value in range(self._num_values):
            self._now[value] += values[value] - (self._rows[before].values[value] if goes_on else 0)
            self._rows[place].values[value] = values[value]
        push_row(&self._ends, begin_ns + duration_ns, (<int64_t>replica << REPLICA_SHIFT) | place)
        self._note(start_ns)
        return 0

    cdef void _end_first(self) noexcept nogil:
        cdef int64_t time_ns = first_ns(&self._ends), row = pop_row(&self._ends).number
        cdef int64_t replica = row >> REPLICA_SHIFT
        cdef int32_t place = <int32_t>(row & ((<int64_t>1 << REPLICA_SHIFT) - 1)), value
        if self._current[replica] == place:
            self._current[replica] = NOWHERE
        self._rows[place].next_free, self._free = self._free, place
        if not self._rows[place].is_followed:
            self._look_before(time_ns)
            for value in range(self._num_values):
                self._now[value] -= self._rows[place].values[value]
            self._note(time_ns)

    cdef void _look_before(self, int64_t time_ns) noexcept nogil:
        """Record the totals at the instants before an event."""
        cdef int32_t value
        while self._look < len(self._at_s) and self._at_s[self._look] < <double>time_ns / 1e9:
            for value in range(self._num_values):
                self._looks[self._look, value] = self._now[value]
            self._look += 1

    cdef void _note(self, int64_t time_ns) noexcept nogil:
        """Record the totals from an event on."""
        cdef double time_s = <double>time_ns / 1e9
        cdef int32_t value
        while self._column + 1 < len(self._edges_s) and self._edges_s[self._column + 1] <= time_s:
            self._column += 1
        cdef bint is_first = self._first_s[self._column] != self._first_s[self._column]
        if is_first:
            self._first_s[self._column] = time_s
        for value in range(self._num_values):
            if is_first or self._now[value] < self._lows[self._column, value]:
                self._lows[self._column, value] = self._now[value]
            if is_first or self._now[value] > self._highs[self._column, value]:
                self._highs[self._column, value] = self._now[value]
            if self.num_events == 0 or self._now[value] > self._peaks[value]:
                self._peaks[value], self._peak_s[value] = self._now[value], time_s
        if self.num_events < len(self._raw_s):
            self._raw_s[self.num_events] = time_s
            for value in range(self._num_values):
                self._raw[self.num_events, value] = self._now[value]
        self.num_events += 1

    cdef int _grow(self) except -1:
        """Make room for more unfinished rows."""
        cdef int32_t room = 2 * self._room if self._room else FIRST_ROOM, place
        resize(&self._rows, room * sizeof(Row))
        for place in range(room - 1, self._room - 1, -1):
            self._rows[place].next_free, self._free = self._free, place
        self._room = room
        return 0
