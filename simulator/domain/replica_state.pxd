"""A gateway's knowledge of a replica: the replica's reports, and the gateway's own account.

The dtypes are in simulator.domain.records; a test holds the two definitions together.
"""
from libc.stdint cimport int8_t, int32_t, int64_t


cdef enum InferType:            # role of a replica; the codes of ReplicaAccount.infer_type
    NEUTRAL = 0                 # whole requests
    PREFILL = 1
    DECODE = 2


cdef struct ReplicaState:       # as the replica reports it
    int64_t time_ns             # time of the state; 0 in a state never reported
    int64_t iterations          # iterations that have begun
    int64_t waiting_prefill_tokens      # tokens that waiting requests still compute, cached prefixes included
    int64_t running_prefill_tokens      # tokens that running requests still compute before they sample their next one,
                                        # those of the iteration in progress included; of decoding requests: none
    int64_t unallocated_prefill_tokens  # running_prefill_tokens without those of the iteration in progress
    int64_t waiting_tokens      # texts, prompt and outputs so far, of waiting requests
    int64_t running_tokens      # of running requests
    int64_t loading_tokens      # of requests with KV on its way to this replica
    int64_t iteration_ns        # duration of the iteration in progress, or of the last one
    int64_t preemptions         # so far
    int64_t prefix_query_tokens         # prompt tokens looked up in the prefix cache at first admissions, so far
    int64_t prefix_hit_tokens           # prompt tokens found there
    double cache_hit_rate       # found / looked up, BLIS's CacheHitRate; 0 before the first look-up
    int32_t iteration_prefill_tokens    # prompt tokens in it
    int32_t waiting             # requests in the waiting queue
    int32_t running             # requests in the running list
    int32_t loading             # requests with KV on its way to this replica
    int32_t used_blocks         # KV blocks in use
    int32_t num_blocks          # KV blocks in total, the null block not counted
    int32_t block_size          # tokens per block
    int32_t max_running         # requests in the running list, at most
    int32_t max_batched_tokens  # tokens in an iteration, at most
    int32_t is_silent           # the replica is paused and reports nothing; the rest is older


cdef inline double hit_rate_of(const ReplicaState* state) noexcept nogil:
    return (<double>state.prefix_hit_tokens / <double>state.prefix_query_tokens if state.prefix_query_tokens > 0
            else 0.0)


cdef struct ReplicaAccount:     # on the gateway's own account: always exact
    int64_t in_flight_tokens    # prompt tokens of the requests in flight
    int64_t expected_tokens     # predicted output tokens of the requests in flight
    int64_t dispatched          # requests ever sent there
    int64_t up_since_ns         # when it last started
    int32_t in_flight           # requests sent there and not gone: completed, dropped, timed out, moved
    int32_t replica             # its number in the cluster
    int32_t pool                # index of its pool
    int32_t node                # the node, and the unit (rack, scale-up domain), on which it runs; they fail together
    int32_t unit
    int8_t infer_type           # InferType
    int8_t is_routable          # new requests may go there: up, as far as the gateway knows, and not being drained
    int8_t spare[2]
