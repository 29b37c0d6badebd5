"""A run: iterations of an unchanged group, planned up to the next change.

It is cut by an earlier event: an arrival, a time-out. Under async scheduling an iteration is scheduled when the one
before begins; so one more is in flight behind the one that executes, and is planned though the run does not end it.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.domain.iteration cimport Batch
from simulator.engine.replica.pipeline cimport Pipeline
from simulator.kv.base cimport KVCache
from simulator.latency.base cimport LatencyModel
from simulator.scheduling.base cimport Scheduler

cdef extern from *:
    const int64_t END_OF_CLOCK_NS "INT64_C(8000000000000000000)"    # 253 years; one more iteration still fits an int64

cdef enum:
    MAX_RUN = 1024              # iterations planned at once: the most that a cut can waste


cdef struct RunAhead:
    int32_t length              # iterations in the run; 1: just the batch, and the fields below are not valid
    int32_t behind              # iterations in flight behind the one that executes
    int64_t start_ns            # when the first iteration began to execute
    int64_t context_tokens      # of the first iteration, as BatchShape counts them
    int32_t room                # iterations that fit before the arrays must grow, MAX_RUN at most
    int64_t* ends_ns            # [length + behind] end of iteration i, start of iteration i + 1
    int32_t* used_blocks        # [length + behind] after scheduling of each iteration
    bint keeps_contexts         # members form a multi-token cohort
    int64_t* contexts           # [length] if keeps_contexts, context_tokens of iteration i; else NULL
    int64_t scheduled_ns        # behind > 0: when the first iteration was scheduled
    int32_t waiting             # behind > 0: waiting and running requests, after all but the first iteration
    int32_t running


# Make room for `most` iterations, or MAX_RUN. -1 without memory.
cdef int grow_run(RunAhead* run, int64_t most) except -1 nogil
cdef void free_run(RunAhead* run) noexcept nogil

# Plan at most `most` iterations; there must be room for them and for those behind. The first are those in flight, the
# next has phase `phase`. Stop if an iteration would not get its blocks, and after the first, whether in flight behind
# another or not, that ends at or after `horizon_ns`.
cdef void plan_run(RunAhead* run, Pipeline* pipeline, int64_t most, int64_t horizon_ns, LatencyModel latency,
                   KVCache kv, int32_t phase) noexcept nogil

# The same for multi-token members: one iteration is in flight, and the scheduler predicts the next ones.
cdef void plan_multi_token(RunAhead* run, Pipeline* pipeline, int64_t most, int64_t horizon_ns, LatencyModel latency,
                           Scheduler scheduler) noexcept nogil

# Have iterations from the `first` planned on uncounted, before `end`: they will not execute as planned.
cdef void take_back(const RunAhead* run, Pipeline* pipeline, int32_t first, int32_t end,
                    LatencyModel latency) noexcept nogil

# After `count(-1, True)`: count again. Clear the fault of an iteration that may never execute; if it does, it is
# scheduled by itself and fails again.
cdef void end_taking_back(LatencyModel latency) noexcept nogil

# End the run with the iteration in progress, the first that does not end before `now_ns`; return its end.
cdef int64_t cut_run(RunAhead* run, int64_t now_ns) noexcept nogil

# Return the iteration in progress just before `now_ns`: the first that does not end before it.
cdef int32_t iteration_at(const RunAhead* run, int64_t now_ns) noexcept nogil

# Return the first planned iteration after `i` with `used_blocks` KV blocks in use, where their number only grows; or
# with another number than `i`; length + behind if there is none.
cdef int32_t first_using(const RunAhead* run, int32_t i, int32_t used_blocks) noexcept nogil
cdef int32_t first_using_others(const RunAhead* run, int32_t i) noexcept nogil

# Make `batch` iteration i of the run or behind it, except for fields that are equal in the whole run.
cdef void move_to(const RunAhead* run, Batch* batch, int32_t i) noexcept nogil

# Take the first `count` iterations, fewer than all, off a run; the batches in flight become the next ones.
cdef void drop_from_run(RunAhead* run, Pipeline* pipeline, int32_t count) noexcept nogil

# Return the largest number of KV blocks in use in one of the first `count` iterations.
cdef int32_t most_used_blocks(const RunAhead* run, int32_t count) noexcept nogil

# Add used blocks x duration (ns) of the first `count` iterations.
cdef void add_used_blocks(const RunAhead* run, int32_t count, double* block_ns) noexcept nogil
