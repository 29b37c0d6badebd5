"""Llumnix's input for each replica at a decision: status, account of requests in flight, request.

In brackets: the name in llumnix-project/llumnix at 8a693b4, cms.proto.
"""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.routing.llumnix.predictor cimport ProfileTable


cdef struct Candidate:              # a cache line each for fields of every decision, for load, for decodes
    int64_t time_ns                 # time of its status [timestamp_ms]
    int64_t hit_tokens              # of the prompt at hand, in the cache here
    int64_t miss_tokens
    int64_t predicted_tokens        # prefill tokens computed since the status, as the online predictor has it
    int32_t waiting                 # [num_waiting_requests]
    int32_t running                 # [num_running_requests]
    int32_t loading                 # requests with KV on its way [num_loading_requests]
    int8_t infer_type               # InferType
    int8_t reserved                 # InferType for which adaptive P/D reserves it; NOT_RESERVED
    int8_t is_schedulable           # it takes requests
    int8_t needs_failover           # found unschedulable or stale while this request is scheduled
    int32_t node                    # -1: unknown; so for unit
    int32_t unit
    int32_t data_parallel_size      # replicas of its unit that work in step; 1: each for itself
    int32_t max_batched_tokens      # per iteration
    int64_t waiting_prefill_tokens  # [num_uncomputed_tokens_all_waiting_prefills]
    int64_t running_prefill_tokens  # [num_uncomputed_tokens_scheduler_running_prefills]
    int64_t in_flight_prefill_tokens    # sent, not yet in a status; as are all in_flight fields
                                        # [num_uncomputed_tokens_inflight_dispatch_prefill_requests]
    int64_t in_flight_decode_tokens     # [num_tokens_inflight_dispatch_decode_requests]
    int64_t total_tokens            # room of its KV cache [num_total_gpu_tokens]
    int64_t used_tokens             # [num_used_gpu_tokens]
    int64_t unallocated_prefill_tokens  # [num_unallocated_tokens_scheduler_running_prefills]
    int64_t hybrid_unallocated_tokens   # of requests with KV still to be fetched
                                        # [num_unallocated_tokens_hybrid_scheduler_waiting_decodes]
    int64_t hybrid_decode_tokens    # texts of hybrid_decodes [hybrid_scheduler_waiting_to_decode_tokens_num]
    int64_t waiting_decode_tokens   # of waiting_decodes [scheduler_waiting_to_decode_tokens_num]
    int64_t running_decode_tokens   # of running_decodes [scheduler_running_to_decode_tokens_num]
    int64_t loading_tokens          # of loading requests [num_tokens_loading_requests]
    int32_t hybrid_decodes          # requests [hybrid_scheduler_waiting_to_decode_requests_num]
    int32_t waiting_decodes         # [scheduler_waiting_to_decode_requests_num]
    int32_t running_decodes         # [scheduler_running_to_decode_requests_num]
    int32_t in_flight_decodes       # [num_inflight_dispatch_decode_requests]; a whole request is one of both
    int32_t in_flight_prefills      # [num_inflight_dispatch_prefill_requests]
    int32_t in_flight               # [num_inflight_dispatch_requests]
    int64_t step                    # iterations begun [update_id]
    int64_t lite_tokens             # lite mode: of texts, as the gateway counts them
    int32_t lite_requests
    int32_t is_silent               # its process stood still when it was looked at last
    int64_t headroom_tokens         # kept free for urgent requests there


# It lives, takes requests and has none: there is nothing else to report.
cdef inline bint is_idle(const Candidate* c) noexcept nogil:
    return c.is_schedulable and not c.is_silent and c.waiting == 0 and c.running == 0 and c.loading == 0


cdef enum:
    NOT_RESERVED = 0                # as NEUTRAL: nothing is reserved for whole requests


cdef class Candidates:
    cdef readonly int32_t count
    cdef Candidate* items           # [count]
    cdef float* metrics             # [metric][candidate], as last computed; float32 like upstream's
    cdef int8_t* flags              # [count] scratch of the caller
    cdef int64_t now_ns
    cdef ProfileTable ttft          # duration in ms of a prefill of (tokens, 0)
    cdef ProfileTable tpot          # of a decode iteration of (sequences, tokens per sequence)
    cdef readonly object array      # the items as a NumPy array: records CANDIDATE
    cdef readonly object metric_array       # [NUM_METRICS, count]
    cdef object _flag_array

    # Forget the last request.
    cdef void begin(self, int64_t now_ns) noexcept nogil

    cdef inline int64_t age_ms(self, int32_t i) noexcept nogil:
        return (self.now_ns - self.items[i].time_ns) // 1000000

    cdef inline float metric(self, int32_t metric, int32_t i) noexcept nogil:
        return self.metrics[<int64_t>metric * self.count + i]


# The length of the run of chunks that a replica holds, from the first of `held` on: a gap ends it for good. As upstream
# has it, the run may begin later and still counts.
cdef int32_t run_of_chunks(const int8_t* held, int32_t num_chunks, bint may_begin_late) noexcept nogil

# Note that `hit_tokens` of the prompt are cached there. As upstream has it, a replica without hits misses none.
cdef inline void note_hits(Candidate* candidate, int64_t prompt_tokens, int64_t hit_tokens,
                           bint cold_misses_none) noexcept nogil:
    candidate.hit_tokens = hit_tokens
    candidate.miss_tokens = 0 if hit_tokens == 0 and cold_misses_none else prompt_tokens - hit_tokens
