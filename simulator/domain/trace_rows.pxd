"""Rows that the engine writes while it runs, on request: samples of replicas, decisions of routers.

The dtypes are in simulator.domain.records; a test holds the two definitions together.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t


cdef struct SampleRow:          # /replica_samples in results.h5
    int64_t time_ns             # before any other event at that instant
    int32_t replica
    int32_t waiting             # requests in the waiting queue
    int32_t running             # requests in the running list
    int32_t used_blocks         # the null block not counted
    int32_t in_flight           # requests sent there and not gone
    int32_t spare


cdef struct DecisionRow:        # /decisions in results.h5
    int64_t time_ns
    double score                # of the replica that was chosen; NaN: none was
    double best_score           # of all candidates; NaN: there was none
    double regret               # how much better the best was, >= 0
    int32_t request             # its row in /requests
    int32_t replica             # -1: none could take it
    int32_t num_candidates      # replicas that could have been chosen
    int32_t entrance            # index of the served model


cdef struct CandidateRow:       # /candidates in results.h5: the replica as the router saw it
    int64_t decision            # row in /decisions
    double score
    int32_t rank                # 0: the best; among equals the lower replica is first
    int32_t replica
    int32_t waiting
    int32_t running
    int32_t in_flight
    int32_t used_blocks
    int32_t free_blocks
    int32_t spare


cdef struct LifecycleRow:       # /lifecycle in results.h5: a change in the life of a replica
    int64_t time_ns
    int32_t replica
    int8_t state                # from this instant; engine/operations/lifecycle.pxd has the codes, and those of causes
    int8_t cause
    int16_t spare
