"""`bucket`: each replica gets the prompts of a range of lengths, with about equal work in each."""
from libc.math cimport INFINITY
from libc.stdint cimport INT64_MAX, int8_t, int32_t, int64_t
from libc.stdlib cimport calloc, free, qsort
from libc.string cimport memmove
cimport cython

from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.core.clock cimport ns_from_s
from simulator.core.memory cimport resize
from simulator.routing.parts.scored_router cimport ScoredRouter

cdef enum:
    FIRST_SENT = 256            # room for requests of the window at first


class BucketParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A range of prompt lengths for each replica, the shortest for the first.

    The work of a replica is the prompt tokens that it was sent in the last adjust_interval_s, as of the request before.
    If most - least work > balance_abs_threshold and most > balance_rel_threshold x least: the least, drawn of several.
    Else the replica with the range of the prompt. At first the ranges divide first_span_tokens equally; when a replica
    opens or closes, the first replica gets all lengths. Every adjust_interval_s, if the share S of the work of one
    replica is above twice that of the last adjustment or below its half: the prompts of the window, by length, are
    added up to S for each replica in turn, and its range ends with the length that reaches S; or S tokens after its
    beginning, if that length is below it, or none is left.
    Source: bucket of SGLang's gateway (sgl-project/sglang, sgl-model-gateway/src/policies/bucket@092fb045.rs), for
    prefill workers; it measures characters, here tokens.
    """

    balance_abs_threshold: Annotated[int, Meta(ge=0, le=2**40, extra={"unit": "tokens"}, description=(
        "difference of work up to which ranges count"))] = 32
    balance_rel_threshold: Annotated[float, Meta(ge=1, le=1e6, description=(
        "ratio of most to least work up to which ranges count"))] = 1.0001
    adjust_interval_s: Annotated[float, Meta(gt=0, le=1e6, description=(
        "time between two adjustments of the ranges, and window of the work"))] = 5.0
    first_span_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1, description=(
        "prompt lengths that the ranges divide equally at first"))] = 4096


cdef struct Sent:               # a request within the window
    int64_t time_ns
    int32_t tokens
    int32_t replica


cdef int compare_lengths(const void* a, const void* b) noexcept nogil:
    cdef int32_t one = (<const int32_t*>a)[0], other = (<const int32_t*>b)[0]
    return (one > other) - (one < other)


@cython.final
cdef class Bucket(ScoredRouter):
    """The replica for prompts of this length."""

    Parameters = BucketParameters

    cdef int64_t _abs_threshold, _interval_ns, _first_span
    cdef double _rel_threshold
    cdef int8_t* _is_open       # [replica] as of the ranges
    cdef int32_t* _open         # [_num_open] replicas with a range, by number
    cdef int32_t _num_open      # -1: there are no ranges yet
    cdef int64_t* _ends         # [_num_open] longest prompt of each range
    cdef int64_t* _work         # [replica] prompt tokens of its requests in the window
    cdef Sent* _sent            # [_end_sent] requests, those of the window from _first_sent on
    cdef int64_t _room, _first_sent, _end_sent
    cdef int64_t _total         # prompt tokens in the window
    cdef int64_t _share         # work of a replica at the last adjustment; 0: none yet
    cdef int64_t _adjusted      # number of intervals that have ended, as of the last adjustment

    def __cinit__(self, parameters, context):
        self._is_open = <int8_t*>calloc(self.num_replicas, sizeof(int8_t))
        self._open = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
        self._ends = <int64_t*>calloc(self.num_replicas, sizeof(int64_t))
        self._work = <int64_t*>calloc(self.num_replicas, sizeof(int64_t))
        if self._is_open == NULL or self._open == NULL or self._ends == NULL or self._work == NULL:
            raise MemoryError()
        self._num_open = -1

    def __init__(self, parameters, context):
        self._abs_threshold, self._rel_threshold = parameters.balance_abs_threshold, parameters.balance_rel_threshold
        self._interval_ns, self._first_span = ns_from_s(parameters.adjust_interval_s), parameters.first_span_tokens

    def __dealloc__(self):
        free(self._is_open)
        free(self._open)
        free(self._ends)
        free(self._work)
        free(self._sent)

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int64_t least = INT64_MAX, most = 0
        cdef int32_t owner, i
        self._note_open()
        self._adjust(now_ns)
        for i in range(self._num_open):
            least, most = min(least, self._work[self._open[i]]), max(most, self._work[self._open[i]])
        owner = self._owner(self.requests[row].prompt_tokens)
        if self._num_open > 0 and most - least > self._abs_threshold and most > self._rel_threshold * least:
            owner = -1
        for i in range(self.num_replicas):
            if not self._is_open[i]:
                scores[i] = -INFINITY
            else:
                scores[i] = <double>(i == owner) if owner >= 0 else -<double>self._work[i]
        return 0

    cdef int32_t _owner(self, int32_t tokens) noexcept nogil:
        """Return the replica with the range of a length; -1: none is open."""
        cdef int32_t low = 0, high = self._num_open - 1, middle
        while low < high:
            middle = (low + high) // 2
            if self._ends[middle] < tokens:
                low = middle + 1
            else:
                high = middle
        return self._open[low] if self._num_open > 0 else -1

    cdef void _note_open(self) noexcept nogil:
        """Begin with new ranges if other replicas are open than before."""
        cdef int32_t i
        cdef bint is_other = self._num_open < 0, is_first = self._num_open < 0
        for i in range(self.num_replicas):
            is_other |= (self.view.accounts[i].is_routable != 0) != self._is_open[i]
        if not is_other:
            return
        self._num_open = 0
        for i in range(self.num_replicas):
            self._is_open[i] = self.view.accounts[i].is_routable != 0
            self._work[i] = 0
            if self._is_open[i]:
                self._open[self._num_open] = i
                self._num_open += 1
        for i in range(self._num_open):
            self._ends[i] = (i + 1) * (self._first_span // self._num_open) - 1 if is_first else INT64_MAX
        if self._num_open > 0:
            self._ends[self._num_open - 1] = INT64_MAX

    cdef int _adjust(self, int64_t now_ns) except -1 nogil:
        """Adjust the ranges if an interval has ended: its requests are those up to the one before."""
        cdef int64_t ended = now_ns // self._interval_ns, share
        cdef int32_t* lengths = NULL
        cdef int64_t count = self._end_sent - self._first_sent, i
        if ended == self._adjusted:
            return 0
        self._adjusted = ended
        if count == 0 or self._num_open <= 0:
            return 0
        share = self._total // self._num_open
        if self._share > 0 and share <= 2 * self._share and self._share <= 2 * share:
            return 0
        self._share = share
        resize(&lengths, count * sizeof(int32_t))
        for i in range(count):
            lengths[i] = self._sent[self._first_sent + i].tokens
        qsort(lengths, count, sizeof(int32_t), compare_lengths)
        self._divide(lengths, count, share)
        free(lengths)
        return 0

    cdef void _divide(self, const int32_t* lengths, int64_t count, int64_t share) noexcept nogil:
        """Write the ends of all ranges but the last, which has none."""
        cdef int64_t at = 0, begin = 0, end, work
        cdef int32_t i
        for i in range(self._num_open - 1):
            work, end = 0, begin + share
            while at < count:
                work += lengths[at]
                at += 1
                if work >= share:
                    if lengths[at - 1] > begin:
                        end = lengths[at - 1]
                    break
            self._ends[i] = end
            begin = end + 1

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef int32_t tokens = self.requests[row].prompt_tokens
        cdef Sent* old
        self._work[replica] += tokens
        while self._first_sent < self._end_sent:
            old = &self._sent[self._first_sent]
            if now_ns - old.time_ns <= self._interval_ns:
                break
            self._work[old.replica] = max(self._work[old.replica] - old.tokens, <int64_t>0)
            self._total -= old.tokens
            self._first_sent += 1
        if self._end_sent == self._room:
            self._make_room()
        self._sent[self._end_sent] = Sent(now_ns, tokens, replica)
        self._end_sent += 1
        self._total += tokens
        return 0

    cdef int _make_room(self) except -1 nogil:
        """Move the window to the front of its memory, which grows if it is more than half full."""
        cdef int64_t count = self._end_sent - self._first_sent
        if 2 * count >= self._room:
            resize(&self._sent, max(2 * self._room, <int64_t>FIRST_SENT) * sizeof(Sent))
            self._room = max(2 * self._room, <int64_t>FIRST_SENT)
        memmove(self._sent, self._sent + self._first_sent, count * sizeof(Sent))
        self._first_sent, self._end_sent = 0, count
        return 0

    cdef int moved(self, int32_t row, int32_t before, int32_t after, int64_t now_ns) except -1 nogil:
        return 0                # its prompt was counted where it was sent first

    # The face for tests and exploration.

    def ranges(self):
        """Return (replica, longest prompt) of each range but the last, which has no end."""
        return [(self._open[i], self._ends[i]) for i in range(max(self._num_open - 1, 0))]
