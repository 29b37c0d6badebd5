"""Rows of the result tables that the engine writes while it runs."""
from libc.stdint cimport int32_t, int64_t


cdef struct IterationRow:       # /iterations in results.h5; waiting, running, used_blocks: after scheduling
    int32_t replica
    int32_t stage
    int64_t start_ns            # when it was scheduled; of later pipeline stages, when it entered them
    int64_t duration_ns         # of its execution in this stage
    int32_t sequences
    int32_t prefill_tokens
    int32_t decode_tokens
    int32_t waiting
    int64_t context_tokens
    int32_t running
    int32_t used_blocks         # the null block not counted
    int32_t preempted
    int32_t rank                # of a data-parallel replica: which one; 0 elsewhere
    int32_t padded_tokens       # tokens computed, including padding of the batch
    int32_t encoder_tokens      # embeddings that encoders computed for it
    int64_t begin_ns            # the accelerator begins it in this stage: later than start_ns where others are ahead


cdef struct ReplicaRow:         # /replicas in results.h5
    int32_t replica
    int32_t num_blocks          # usable: the null block not counted
    int32_t peak_used_blocks
    int32_t rank                # data-parallel rank of its replica; 0 where there are none
    int64_t iterations          # that computed at least one token
    int64_t preemptions
    int64_t requests            # routed here
    int64_t completed
    int64_t busy_ns             # time during which iterations executed
    double used_block_ns        # integral of used blocks over that time, blocks x ns
    int64_t prefix_query_tokens  # prompt tokens looked up at admissions (resumed requests not counted)
    int64_t prefix_hit_tokens   # prompt tokens found, of prefix_query_tokens
    int64_t prefill_tokens
    int64_t decode_tokens


cdef struct TierRow:            # /kv_tiers in results.h5: a level of the KV tiers of a replica
    int32_t replica             # -1: a store that all replicas share
    int32_t level               # 0: host memory; then in the order of the experiment
    int64_t capacity_chunks
    int64_t used_chunks         # at the end
    int64_t stores              # completed copies to the level; stored_chunks: chunks copied
    int64_t stored_chunks
    int64_t loads               # completed copies from the level; loaded_chunks: chunks copied
    int64_t loaded_chunks
    int64_t evicted_chunks      # chunks evicted to make room for others
    int64_t thrashed_chunks     # chunks read less than a millisecond after they were stored
    int64_t refusals            # offers refused for lack of room
    int64_t flushed             # stores that an iteration waited for
    int64_t waited_ns           # duration: iterations waited for copies
    int64_t cancelled           # copies abandoned because their replica failed
    int64_t started             # copies to it and from it that were started
    int64_t underway            # started copies neither done nor cancelled at the end
    int64_t hit_chunks          # chunks found there and read for a request
    int64_t store_busy_ns       # duration: time its link would need for the copies to it, one by one
    int64_t load_busy_ns        # duration: time its link would need for the copies from it, one by one
    double stored_bytes
    double loaded_bytes


cdef struct TierUse:            # of a request, columns of /requests
    int32_t loaded_tokens       # of its text, that KV tiers gave; again after a preemption
    int32_t stored_tokens       # of its text, written to KV tiers for it


cdef struct TokenRow:           # one observed message of a request: `tokens` tokens at `time_ns`
    int64_t time_ns
    int32_t request
    int32_t tokens
