"""The work of one iteration, as far as its duration can depend on it."""
from libc.stdint cimport int8_t, int32_t, int64_t


cdef struct Chunk:                      # the part of one prompt that an iteration computes
    int32_t tokens                      # computed now, >= 1
    int32_t context_tokens              # in the KV cache before it (computed earlier, or prefix hit)
    int32_t prompt_tokens               # of the whole request (for a resumed request: prompt and outputs so far)


cdef enum Graph:
    UNSETTLED = 0                       # not decided yet, or there are no graphs
    EAGER = 1                           # kernels are launched one by one
    PIECEWISE = 2                       # graphs of the parts between attention layers
    FULL = 3                            # one graph of everything


cdef struct BatchShape:                 # sums over the batch; kept incrementally, never by a scan in steady state
    int32_t num_sequences               # scheduled sequences, prefilling and decoding
    int32_t num_decodes                 # decoding sequences among num_sequences
    int32_t num_chunks                  # prefilling sequences among num_sequences: length of `chunks`
    int32_t num_samples                 # sequences that sample a token at the end: rows of the LM head
    int64_t prefill_tokens              # prompt tokens computed (recomputed tokens of resumed requests count here)
    int64_t decode_tokens               # tokens computed for decoding sequences: 1 each, 1 + drafts under speculation
    int64_t context_tokens              # sum over decoding sequences of tokens in KV after this iteration
    # Spread of the contexts of decoding sequences, 0 unless the latency model prices it and each computes one token:
    # the sums of (longest - context) and of (context - shortest). Both stay constant while each sequence gains one
    # token an iteration.
    int64_t below_longest_tokens
    int64_t above_shortest_tokens
    int64_t prefill_context_tokens      # sum over chunks of chunk.context_tokens
    int64_t prefill_token_pairs         # sum over chunks of tokens * (2 * context_tokens + tokens + 1): twice the
                                        # (query, key) pairs of causal attention
    const Chunk* chunks                 # the chunks themselves, for models that need more than sums; NULL if none
    int32_t pad_tokens                  # rows without a token that are computed, too, attention aside: padding to the
                                        # size of a CUDA graph
    int8_t graph                        # the Graph that executes it
    int8_t wastes_drafts                # no sequence can verify drafts that are computed after it
    # Work of engine features around the iteration, 0 without the feature: see simulator/latency/overheads.
    int32_t num_masks                   # rows of logits that a grammar restricts
    int32_t num_adapters                # LoRA adapters, each counted once
    int32_t largest_rank                # largest rank of the num_adapters adapters, where ranks are known
    int32_t num_loads                   # adapters that are copied to the accelerator before it begins
    int32_t num_reads                   # how many of the num_loads adapters come from disk
    int64_t encoder_tokens              # embeddings that encoders compute for it before it begins
    double encoder_ns                   # time of computing them, where items have prices of their own; set only with
                                        # encoder_tokens > 0


# One of nothing. Fields one by one: compilers make a slow string instruction of a memset of this size.
cdef inline void clear_shape(BatchShape* shape) noexcept nogil:
    shape.num_sequences = shape.num_decodes = shape.num_chunks = shape.num_samples = 0
    shape.prefill_tokens = shape.decode_tokens = shape.context_tokens = 0
    shape.prefill_context_tokens = shape.prefill_token_pairs = shape.encoder_tokens = 0
    shape.chunks = NULL
    shape.graph = UNSETTLED
    shape.wastes_drafts = False
    shape.pad_tokens = shape.num_masks = shape.num_adapters = shape.largest_rank = 0
    shape.num_loads = shape.num_reads = 0
    shape.below_longest_tokens = shape.above_shortest_tokens = 0


# Rows that matrix products compute: tokens and padding.
cdef inline int64_t rows_of(const BatchShape* shape) noexcept nogil:
    return shape.prefill_tokens + shape.decode_tokens + shape.pad_tokens


# The sums over `count` batches of one shape; its chunks are those of one batch.
cdef inline void repeat_shape(BatchShape* result, const BatchShape* shape, int32_t count) noexcept nogil:
    result[0] = shape[0]
    result.num_sequences *= count
    result.num_decodes *= count
    result.num_chunks *= count
    result.num_samples *= count
    result.prefill_tokens *= count
    result.decode_tokens *= count
    result.pad_tokens *= count
    result.context_tokens *= count
    result.below_longest_tokens *= count
    result.above_shortest_tokens *= count
    result.prefill_context_tokens *= count
    result.prefill_token_pairs *= count
