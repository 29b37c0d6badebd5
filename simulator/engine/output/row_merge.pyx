"""Rows of several logs, merged in order of start, then of replica.

A tournament: each inner node of a tree holds the loser of a match of two queues by their heads. After the winner's head
was passed on only the matches above its queue are played again, log2(queues) in number.
"""
from libc.stdint cimport INT64_MAX
from libc.stdlib cimport free
cimport cython

from simulator.core.memory cimport resize
from simulator.engine.output.row_log cimport RowLog, pass_head

import numpy as np

from simulator.domain import records

cdef int64_t PIECE_ROWS = 1 << 13       # passed on at once: 640 KiB


cdef inline bint comes_first_of_equals(const RowQueue* one, const RowQueue* other) noexcept nogil:
    """Return whether a head comes before another of equal start: by replica, then as they were recorded."""
    if one.head.replica != other.head.replica:
        return one.head.replica < other.head.replica
    if one.num_passed != other.num_passed:              # of two batches
        return one.num_passed < other.num_passed
    return one.head.stage < other.head.stage


cdef inline bint comes_before(const Runner* one, const Runner* other) noexcept nogil:
    if one.start_ns == other.start_ns:
        return comes_first_of_equals(one.queue, other.queue)
    return one.start_ns < other.start_ns


@cython.final
cdef class RowMerge:
    """Passes rows on to a sink in pieces; a piece that is not full waits for more.

    sink : has `iterations(rows)`; the array is used again.
    logs : list of RowLog, which may grow; no two have rows of one replica.
    """

    def __init__(self, sink, list logs not None):
        cdef IterationRow[::1] view
        self._logs, self._sink = logs, sink
        self._rows = np.empty(PIECE_ROWS, records.ITERATION)
        view = self._rows
        self._out = &view[0]

    def __dealloc__(self):
        free(self._runners)
        free(self._losers)

    def pass_on(self, int64_t before_ns):
        """Pass on the rows that start before an instant; none that starts earlier is still to be recorded."""
        cdef bint is_full = True
        cdef RowLog log
        self._gather()
        while is_full and self._num_runners > 0:
            with nogil:
                is_full = self._merge(before_ns)
            if is_full:
                self.close()
        for log in self._logs:
            log.count_bytes()

    def close(self):
        """Pass on the rows that wait in a piece."""
        if self._num_out > 0:
            self._sink.iterations(self._rows[:self._num_out])
        self._num_out = 0

    cdef int _gather(self) except -1:
        """Let all queues with rows take part."""
        cdef RowLog log
        cdef RowQueue* queue
        cdef int64_t replica
        self._num_runners = 0
        for log in self._logs:
            for replica in range(log.num_replicas):
                queue = log.queues[replica]
                while queue != NULL:
                    if queue.has_head:
                        self._enter(queue)
                    queue = queue.following
        self._begin()
        return 0

    cdef int _enter(self, RowQueue* queue) except -1:
        if self._num_runners == self._room:
            self._room = max(2 * self._room, 16)
            resize(&self._runners, self._room * sizeof(Runner))
            resize(&self._losers, 2 * self._room * sizeof(int32_t))
        self._runners[self._num_runners].start_ns = queue.head.start_ns
        self._runners[self._num_runners].queue = queue
        self._num_runners += 1
        return 0

    cdef void _begin(self) noexcept nogil:
        """Play all matches: node k is above nodes 2 k and 2 k + 1, and the last nodes are the runners."""
        cdef int32_t* nodes = self._losers
        cdef int32_t count = self._num_runners, node, one, other, winner
        for node in range(count, 2 * count):
            nodes[node] = node - count
        for node in range(count - 1, 0, -1):            # winners first
            one, other = nodes[2 * node], nodes[2 * node + 1]
            nodes[node] = one if comes_before(&self._runners[one], &self._runners[other]) else other
        winner = nodes[1] if count > 0 else 0
        for node in range(1, count):
            nodes[node] = nodes[2 * node] + nodes[2 * node + 1] - nodes[node]
        if count > 0:
            nodes[0] = winner

    cdef bint _merge(self, int64_t before_ns) noexcept nogil:
        """Merge rows until the piece is full, which is returned, or none is left that starts before an instant."""
        cdef int32_t* losers = self._losers
        cdef int32_t winner = losers[0]
        cdef Runner* runner
        while self._num_out < PIECE_ROWS:
            runner = &self._runners[winner]
            if runner.start_ns >= before_ns:
                losers[0] = winner
                return False
            self._out[self._num_out] = runner.queue.head
            self._num_out += 1
            pass_head(runner.queue)
            runner.start_ns = runner.queue.head.start_ns if runner.queue.has_head else INT64_MAX
            winner = self._play(winner)
        losers[0] = winner
        return True

    cdef inline int32_t _play(self, int32_t winner) noexcept nogil:
        """Play the matches above a runner again; return the winner. No branches: outcomes are as good as random."""
        cdef const Runner* runners = self._runners
        cdef int32_t* losers = self._losers
        cdef int32_t node = (self._num_runners + winner) // 2, other, exchanged
        cdef bint is_beaten
        while node > 0:
            other = losers[node]
            is_beaten = runners[other].start_ns < runners[winner].start_ns
            if runners[other].start_ns == runners[winner].start_ns:
                is_beaten = comes_first_of_equals(runners[other].queue, runners[winner].queue)
            exchanged = (winner ^ other) & -<int32_t>is_beaten
            losers[node] = other ^ exchanged
            winner ^= exchanged
            node //= 2
        return winner
