"""An item of a prompt that a replica of an encode pool has to encode."""
from libc.stdint cimport int8_t, int32_t, int64_t


cdef struct EncodeJob:
    int64_t queued_ns           # it arrived at the replica; -1: not yet, so for all times below
    int64_t start_ns            # the batch that has it began
    int64_t end_ns              # and ended
    int64_t sent_ns             # its embeddings began to leave
    int64_t transferred_ns      # they had arrived at the replica that computes the prompt
    int32_t request             # row
    int32_t item                # number in its prompt
    int32_t replica             # of the encode pools, numbered pool by pool; -1: none yet
    int32_t embeddings
    int8_t hit                  # its content was cached already, or is computed for another one of the batch
    int8_t spare[7]
