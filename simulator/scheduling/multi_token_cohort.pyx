"""Progress of members that verify drafts; see multi_token_cohort.pxd."""
from libc.stdint cimport INT64_MAX, uint64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.memory cimport resize
from simulator.kv.base cimport blocks_for

from math import gcd

cdef enum:
    MOST_RECURRING = 256        # iterations: a longer period is treated as if nothing recurred
    KEPT_AHEAD = 512            # iterations


@cython.final
cdef class MultiTokenCohort:
    """Tokens that turns of members bring, by iteration.

    acceptance : of all verify steps.
    counts : of the scheduler; without recurring sums, turns are counted when a member joins, and those that it does not
        have are taken back when it leaves; with them, turns are counted when it leaves.
    kv : of the scheduler; notified when members need blocks.
    most_computed : tokens in KV, at most, before a turn that is not cut short at max_model_len.
    """

    def __init__(self, Acceptance acceptance, DraftCounts counts, KVCache kv, int64_t most_computed):
        self._acceptance, self._counts, self._kv, self._most_computed = acceptance, counts, kv, most_computed
        self.num_phases = KEPT_AHEAD
        if acceptance.period > 0:
            cycle_tokens = acceptance.period + acceptance.accepted_before(acceptance.period)
            period = acceptance.period * kv.block_size // gcd(cycle_tokens, kv.block_size)
            self.recurs = period <= MOST_RECURRING
            self.num_phases = period if self.recurs else KEPT_AHEAD
        self.advances = <int64_t*>calloc(self.num_phases, sizeof(int64_t))
        if self.advances == NULL:
            raise MemoryError()
        kv.recur_after(self.num_phases)

    def __dealloc__(self):
        free(self.advances)
        free(self._members)

    cdef int reserve(self, int32_t num_slots) except -1 nogil:
        if num_slots > self._num_slots:
            resize(&self._members, num_slots * sizeof(MultiTokenMember))
            self._num_slots = num_slots
        return 0

    cdef int64_t join(self, int32_t slot, int32_t row, int64_t computed, int64_t iteration,
                      int64_t left) noexcept nogil:
        cdef MultiTokenMember* member = &self._members[slot]
        cdef Turn* turn = &member.turn
        cdef Turn ahead
        cdef int64_t turns
        turn.row, turn.computed, turn.step = row, computed, self._acceptance.steps[row] - 1
        turn.tokens = self._tokens(row, turn.step)
        member.iteration = iteration - 1
        member.num_counted = self._acceptance.steps[row]
        ahead = turn[0]
        if self.recurs:
            turns = self._num_regular(turn, left)
            if turns > 0:
                self._add(&ahead, iteration, self.num_phases, INT64_MAX, 1)
        else:
            turns = self._add(&ahead, iteration, self.num_phases, left, 1)
            member.last_computed = ahead.computed
        member.end = iteration + turns
        self.num_joined += turns > 0
        return member.end

    cdef Turn leave(self, int32_t slot, int64_t iteration) noexcept nogil:
        cdef Turn turn = self.before(slot, iteration), ahead = turn
        cdef int64_t turns = self.num_phases if self.recurs else self._members[slot].end - iteration
        self._add(&ahead, iteration, turns, INT64_MAX, -1)
        return turn

    cdef void count(self, int32_t slot, const Turn* turn, bint has_ended) noexcept nogil:
        cdef int32_t ended = turn.step + has_ended
        if self.recurs:
            self._counts.count_turns(self._acceptance, turn.row, self._members[slot].num_counted, ended)
            self._members[slot].num_counted = ended
        elif not has_ended:
            self._counts.take_back(turn.tokens - 1)

    cdef void count_member(self, int32_t slot, int64_t iteration, bint has_ended) noexcept nogil:
        cdef Turn turn = self.before(slot, iteration), ahead = turn
        cdef int64_t _
        if not self.recurs:                                     # future turns were counted when it joined
            for _ in range(self._members[slot].end - iteration):
                self.next(&ahead)
                self._counts.take_back(ahead.tokens - 1)
        self.count(slot, &turn, has_ended)

    cdef Turn before(self, int32_t slot, int64_t iteration) noexcept nogil:
        cdef MultiTokenMember* member = &self._members[slot]
        cdef Turn* turn = &member.turn
        cdef int64_t turns = iteration - 1 - member.iteration
        member.iteration = iteration - 1
        if self._acceptance.period > 0:
            turn.computed += turns + (
                self._acceptance.accepted_before(turn.step + turns) - self._acceptance.accepted_before(turn.step))
        elif iteration == member.end:
            turn.computed = member.last_computed
        else:
            while turns > 0:
                self.next(turn)
                turns -= 1
            return turn[0]
        turn.step += <int32_t>turns
        turn.tokens = self._tokens(turn.row, turn.step)
        return turn[0]

    cdef int32_t _add(self, Turn* turn, int64_t iteration, int64_t most, int64_t left, int32_t sign) noexcept nogil:
        """Add the tokens of turns after this one, at most `most` and only regular ones; return the number of turns.

        Where sums do not recur, the turns are counted too.

        sign : -1 subtracts them. `turn` becomes the last turn added.
        """
        cdef int32_t block_size = self._kv.block_size, phase = <int32_t>(iteration % self.num_phases), blocks
        cdef int64_t most_computed = self._most_computed if left < INT64_MAX else INT64_MAX
        cdef int64_t reserved = turn.computed + 1 + self._kv.ahead_tokens
        cdef int64_t room = <int64_t>blocks_for(reserved, block_size) * block_size - reserved
        cdef uint64_t stream = self._acceptance.stream(turn.row)
        cdef const uint64_t* bounds = self._acceptance.bounds(turn.row)
        cdef int32_t counted = 0 if self.recurs else sign, added = 0, tokens
        cdef int64_t* steps = self._counts.steps
        while added < most:
            tokens = 1 + self._acceptance.accepted(bounds, stream, turn.step + 1)
            if tokens >= left or turn.computed + turn.tokens > most_computed:
                break
            steps[tokens - 1] += counted
            turn.computed += turn.tokens
            room -= turn.tokens
            if room < 0:
                blocks = blocks_for(-room, block_size)
                room += <int64_t>blocks * block_size
                self._kv.expect(phase, sign * blocks)
            self.advances[phase] += sign * tokens
            left -= tokens
            turn.step += 1
            turn.tokens = tokens
            phase = phase + 1 if phase + 1 < self.num_phases else 0
            added += 1
        self._counts.num_draft_tokens += <int64_t>counted * added * self._counts.num_tokens
        return added

    cdef int64_t _num_regular(self, const Turn* turn, int64_t left) noexcept nogil:
        """Return the number of regular turns after this one, for a cycle of acceptances."""
        cdef int64_t computed = turn.computed + turn.tokens, cycle_tokens, cycles, turns
        cdef int32_t tokens, step
        if computed > self._most_computed:
            return 0
        cycle_tokens = self._acceptance.period + self._acceptance.accepted_before(self._acceptance.period)
        cycles = min((left - 1) // cycle_tokens, (self._most_computed - computed) // cycle_tokens)
        computed += cycles * cycle_tokens
        left -= cycles * cycle_tokens
        turns = cycles * self._acceptance.period
        step = turn.step + 1 + <int32_t>turns
        tokens = 1 + self._acceptance.accepted(NULL, 0, step)
        while tokens < left and computed <= self._most_computed:
            computed += tokens
            left -= tokens
            turns += 1
            step += 1
            tokens = 1 + self._acceptance.accepted(NULL, 0, step)
        return turns

    def check(self, sequences):
        """Raise RuntimeError unless the sums match the members.

        sequences : (slot, iteration to be scheduled next) of each member.
        """
        cdef int64_t* expected = <int64_t*>calloc(self.num_phases, sizeof(int64_t))
        cdef int32_t slot, i, turns
        cdef int64_t iteration
        cdef Turn turn
        if expected == NULL:
            raise MemoryError()
        try:
            for slot, iteration in sequences:
                turn = self.before(slot, iteration)
                turns = self.num_phases if self.recurs else <int32_t>(self._members[slot].end - iteration)
                for i in range(turns):
                    self.next(&turn)
                    expected[(iteration + i) % self.num_phases] += turn.tokens
            for i in range(self.num_phases):
                if expected[i] != self.advances[i]:
                    raise RuntimeError(f"phase {i}: members gain {expected[i]} tokens, {self.advances[i]} counted")
        finally:
            free(expected)
