"""The records of a request: its history, its declared parameters, its outcome, which is unknown until it ends.

One definition serves as C struct, as NumPy dtype (simulator.domain.records) and, field by field, as HDF5 compound type.
"""
from libc.stdint cimport int8_t, int32_t, int64_t


cdef enum RequestStatus:        # the codes of results.h5 (attribute of /requests); written by the engine alone
    PENDING = 0                 # not arrived yet
    WAITING = 1                 # in a waiting queue, or on the way to one; preempted requests too
    RUNNING = 2                 # holds a place in a replica's running list
    COMPLETED = 3
    REJECTED = 4                # refused at the door: the prompt leaves no room for a token, or admission said no
    DROPPED = 5                 # refused on arrival: the prompt leaves no room for a token, or by the admission policy
    TIMED_OUT = 6               # its deadline passed first
    FAILED = 7                  # its client had received tokens, then it was refused or lost; or its grammar does not
                                # compile
    NOT_SENT = 8                # it never arrived: its predecessor failed, or the load ended first


cdef struct Request:            # 64 bytes, one cache line; shown in the results
    int64_t arrival_ns
    int64_t enqueued_ns         # entered the waiting queue of its replica; -1: never (so for all times below)
    int64_t scheduled_ns        # first scheduled
    int64_t first_token_ns      # first token observed
    int64_t completed_ns        # last token observed
    int32_t prompt_tokens
    int32_t output_tokens       # tokens generated and kept so far
    int32_t cached_tokens       # prompt tokens found in the prefix cache at first admission
    int32_t preemptions
    int32_t replica             # -1: not routed
    int8_t status               # RequestStatus
    int8_t spare[3]             # keeps the record at 64 bytes


cdef struct Demand:             # declared by the client; policies may read it
    int64_t deadline_ns         # instant (not duration) at which the client gives up; -1: never
    int64_t due_ns              # when the client wants the whole answer; it may wait longer; -1: no such time
    int32_t max_tokens          # declared output limit, >= 1
    int32_t priority            # lower is served first
    int32_t tie_rank            # order among equal priority and arrival: rank of the request id
    int32_t segments_begin      # first row of its prompt in the segment table
    int32_t num_segments        # 0: the prompt is its own, nothing is shared
    int32_t slo_class           # index into Workload.labels["slo_class"]; -1: none; as in the next five
    int32_t tenant
    int32_t session
    int32_t model
    int32_t adapter
    int32_t grammar             # that its answer keeps to
    int32_t expected_tokens     # predicted output length, for policies; -1: no prediction


cdef struct Outcome:            # the future; only engine and workload may import this
    int32_t output_tokens       # tokens the model will generate before it stops by itself, >= 0


cdef struct Segment:            # `num_tokens` first tokens of a token stream; a prompt is a sequence of segments
    int64_t stream              # see the stream codes below
    int64_t num_tokens          # >= 1


cdef struct Item:               # a piece of a prompt, an image say, that an encoder turns into embeddings
    int32_t content             # code of its content: equal items have one code, 0 .. Items.num_contents - 1
    int32_t offset              # tokens of the prompt before it
    int32_t tokens              # of the prompt that it takes, each an embedding; >= 1


# Stream codes. A token's identity is (stream, offset); two prompts share a prefix as far as these agree.
cdef inline int64_t named_stream(int64_t code) noexcept nogil:
    return code << 2

cdef inline int64_t own_stream(int64_t row) noexcept nogil:
    return (row << 2) | 1

cdef inline int64_t output_stream(int64_t row) noexcept nogil:
    return (row << 2) | 2
