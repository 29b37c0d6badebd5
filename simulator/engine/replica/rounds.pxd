"""Runs with pipeline stages: while no sequence joins or leaves, groups alternate, with one batch each per round.

A batch is scheduled when there is room for it: when the batch of its own group is back, or under async scheduling the
batch before that. So the next batches follow from those in flight alone.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.domain.batch cimport BatchShape
from simulator.domain.iteration cimport Batch, StageVisit
from simulator.engine.replica.pipeline cimport Pipeline
from simulator.engine.replica.run_ahead cimport RunAhead
from simulator.kv.base cimport KVCache
from simulator.latency.base cimport LatencyModel


cdef struct Turn:               # of a group, once in each round
    BatchShape shape            # of the group's first batch in the run
    int64_t step                # number of that batch
    int64_t context_tokens      # while planning: of the group's batch that was planned last
    int32_t group
    int32_t phase               # while planning, and while the run is carried out: of the group's next batch


cdef struct Rounds:             # of a run; indices of iterations below include those in flight at its end
    int32_t num_turns           # groups that alternate: iteration i is of turn i % num_turns
    Turn* turns                 # [num_stages] in order, the oldest batch in flight first
    StageVisit* visits          # [room][num_stages] of each iteration
    int32_t room


cdef int reserve_rounds(Rounds* rounds, int32_t num_stages) except -1
cdef int grow_rounds(Rounds* rounds, int32_t room, int32_t num_stages) except -1 nogil
cdef void free_rounds(Rounds* rounds) noexcept nogil

# Return whether the batches in flight consist of members alone, and as many of each group as there are in a steady
# state; if so, begin a run with them. There must be room for them.
cdef bint begin_rounds(Rounds* rounds, RunAhead* run, Pipeline* pipeline) noexcept nogil

# Plan at most `most` iterations; each turn needs the phase of its next one. For the other arguments see plan_run.
cdef void plan_rounds(Rounds* rounds, RunAhead* run, Pipeline* pipeline, int64_t most, int64_t horizon_ns,
                      LatencyModel latency, KVCache kv) noexcept nogil

# See take_back.
cdef void take_back_rounds(Rounds* rounds, Pipeline* pipeline, int32_t first, int32_t end,
                           LatencyModel latency) noexcept nogil

# Return the tokens of all members in the first `count` iterations, one for each.
cdef int64_t tokens_of_rounds(const Rounds* rounds, int32_t count) noexcept nogil

# Return the phase of a turn's next batch, and advance it to the batch after.
cdef inline int32_t next_phase(Rounds* rounds, int32_t turn, int32_t block_size) noexcept nogil:
    cdef int32_t phase = rounds.turns[turn].phase
    rounds.turns[turn].phase = phase + 1 if phase + 1 < block_size else 0
    return phase

# Return the first iteration from `i` on that is of this turn.
cdef inline int32_t next_of_turn(const Rounds* rounds, int32_t turn, int32_t i) noexcept nogil:
    return i + (turn - i % rounds.num_turns + rounds.num_turns) % rounds.num_turns

# Make `batch` iteration i.
cdef void move_to_round(const Rounds* rounds, const RunAhead* run, Pipeline* pipeline, Batch* batch,
                        int32_t i) noexcept nogil

# Take the first `count` iterations, fewer than all, off a run; the batches in flight become the next ones.
cdef void drop_rounds(Rounds* rounds, RunAhead* run, Pipeline* pipeline, int32_t count) noexcept nogil
