"""Progress of members that verify drafts: several tokens a turn, as their acceptance says.

A turn is *regular* if it verifies all its drafts, is not cut short at max_model_len, and is not the last. All turns of
a member are regular; so the tokens of each turn are known when it joins, and are summed up per iteration: the cost of
an iteration does not depend on the number of members. If acceptances recur, so do the sums, after `num_phases`
iterations. If they are drawn, sums are kept for `num_phases` iterations ahead, and a member that goes on longer leaves
and joins again.

No policy reads future turns.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.acceptance cimport Acceptance
from simulator.domain.draft_counts cimport DraftCounts
from simulator.kv.base cimport KVCache


cdef struct Turn:
    int32_t row                 # the request
    int32_t step                # verify steps before it
    int64_t computed            # tokens in KV before it
    int32_t tokens              # tokens that it brings: accepted drafts and one more


cdef struct MultiTokenMember:   # of a member
    Turn turn                   # a turn that has ended, or is in flight
    int64_t iteration           # iteration of that turn
    int64_t end                 # first iteration without a regular turn, or beyond the sums kept
    int64_t last_computed       # tokens in KV before the turn that precedes `end`
    int32_t num_counted         # where sums recur: verify steps of its request that are counted


@cython.final
cdef class MultiTokenCohort:
    cdef Acceptance _acceptance
    cdef DraftCounts _counts            # borrowed from the scheduler
    cdef KVCache _kv
    cdef int64_t _most_computed         # most tokens in KV before a turn that is not cut short
    cdef readonly int32_t num_phases    # iteration i is of phase i % num_phases
    cdef readonly bint recurs           # sums recur
    cdef int64_t* advances              # [num_phases] tokens that all members gain in an iteration of a phase
    cdef int64_t last_advance           # tokens gained in the iteration that began last
    cdef readonly int64_t num_joined    # additions of members so far
    cdef MultiTokenMember* _members     # [slot]
    cdef int32_t _num_slots

    # Make room for slots 0 .. num_slots - 1; -1 if memory runs out.
    cdef int reserve(self, int32_t num_slots) except -1 nogil

    # Make a sequence a member from `iteration` on; its last turn was regular, with `computed` tokens in KV before it.
    # `left`: tokens until it is complete. Return the first iteration in which it is no member; `iteration` itself means
    # that it has not become one.
    cdef int64_t join(self, int32_t slot, int32_t row, int64_t computed, int64_t iteration, int64_t left) noexcept nogil

    # Remove a member from `iteration` on; return its turn before that, which may still be in flight: the steps of the
    # request that have ended are those of note_steps.
    cdef Turn leave(self, int32_t slot, int64_t iteration) noexcept nogil

    # Count accepted drafts: of a sequence that left after this turn, or of a member as if it left. `has_ended`: the
    # turn has ended; else it is discarded.
    cdef void count(self, int32_t slot, const Turn* turn, bint has_ended) noexcept nogil
    cdef void count_member(self, int32_t slot, int64_t iteration, bint has_ended) noexcept nogil

    # The turn of a member in the iteration before `iteration`, which must not decrease between calls; the next turn.
    cdef Turn before(self, int32_t slot, int64_t iteration) noexcept nogil

    @cython.final
    cdef inline void next(self, Turn* turn) noexcept nogil:
        turn.computed += turn.tokens
        turn.step += 1
        turn.tokens = self._tokens(turn.row, turn.step)

    # Record the number of verify steps of a request that have ended.
    @cython.final
    cdef inline void note_steps(self, int32_t row, int32_t num_steps) noexcept nogil:
        self._acceptance.steps[row] = num_steps

    # Begin an iteration; return the tokens that its members gain.
    @cython.final
    cdef inline int64_t begin(self, int32_t phase) noexcept nogil:
        self.last_advance = self.advances[phase]
        if not self.recurs:
            self.advances[phase] = 0
            self._kv.forget_due(phase)
        return self.last_advance

    @cython.final
    cdef inline int32_t _tokens(self, int32_t row, int32_t step) noexcept nogil:
        return 1 + self._acceptance.accepted(
            self._acceptance.bounds(row), self._acceptance.stream(row) if self._acceptance.period == 0 else 0, step)

    cdef int32_t _add(self, Turn* turn, int64_t iteration, int64_t most, int64_t left, int32_t sign) noexcept nogil
    cdef int64_t _num_regular(self, const Turn* turn, int64_t left) noexcept nogil
