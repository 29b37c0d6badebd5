"""KV transfer of a request from its prefill replica to its decode replica."""
from libc.stdint cimport int8_t, int32_t, int64_t


cdef enum Stage:                # of a hand-over
    NOT_SPLIT = 0               # one replica does the whole request
    PROMPT_ONLY = 1             # one replica does all: no token is kept, so that the request ends with its prompt
    PREFILLING = 2              # a replica has the prompt to compute
    READY = 3                   # it is done, and its blocks wait to be read
    ASKED = 4                   # the decode replica has blocks for it, and it is about to move
    SHAKING_HANDS = 5           # the two replicas get to know each other first
    MOVING = 6                  # the KV is on its way
    MOVED = 7                   # its KV has arrived; or none is expected any more
    NOT_COME = 8                # it was to be read, and is not; its decode replica has not noticed yet


cdef struct Transfer:           # of a request; of several attempts the last one
    int64_t prefill_done_ns     # its prompt was computed; -1: never (so for all times below)
    int64_t start_ns            # its KV began to move, after the handshake
    int64_t end_ns              # all of its KV had arrived
    int64_t num_bytes           # on the wire
    int32_t prefill_replica     # -1: none
    int32_t decode_replica      # that read it, or is about to; -1: none
    int32_t decode_place        # the decode replica chosen beforehand, as numbered in the view; -1: none is
    int32_t prefill_slot        # slot of the blocks that are read; -1: none are kept
    int32_t decode_slot         # slot of the blocks that they are read into; -1: none yet
    int32_t loaded_tokens       # tokens of its text that the decode replica lacked
    int32_t carrier             # slot of the transport while it moves
    int32_t computed_tokens     # prompt tokens computed, as the prefill replica last reported, where it reports chunks
    int32_t sent_tokens         # of its text, from its beginning: moved, on their way, or at the decode replica before
    int32_t under_way           # pieces of its KV on their way
    int32_t lease               # on the blocks that are read, in `Leases`; -1: none, or it has run out
    int8_t stage                # Stage
    int8_t has_begun            # the prefill replica has begun to compute it, where it reports that
    int8_t has_met              # the decode replica has room, and both replicas know each other
    int8_t is_tail              # only its last layer has not arrived
    int8_t is_local             # one replica does all of it, possibly in two parts
    int8_t is_promised         # it counts at the decode replica chosen beforehand, and is not there yet
    int8_t spare[2]
