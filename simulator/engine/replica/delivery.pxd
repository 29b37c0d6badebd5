"""What reaches the clients: tokens, and the end of each request.

The one place that knows how long answers will be.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.domain.request cimport Outcome, Request
from simulator.engine.replica.departures cimport Departures
from simulator.engine.output.recorder cimport Recorder

cdef enum:
    NO_TOKEN_NS = -1                    # no token has left the engine yet
    VOID_TOKEN_NS = -2                  # some had; the request began anew, and they do not count


@cython.final
cdef class Delivery:
    cdef readonly int64_t output_ns     # added to each observed token time, [latency.host] output_token_us
    cdef readonly int64_t gap_ns        # added once more for each token before: output_ns if it accumulates, else 0
    cdef readonly int64_t completion_ns     # from the last token to completion, [latency.host] completion_us
    cdef int64_t* last_token_ns         # [row] engine time of the last token, or as above; of a member: of its first
    cdef Request* _requests
    cdef const Outcome* _outcomes
    cdef int64_t _num_clients           # rows that somebody waits for; those behind are prefill legs of requests
    cdef int64_t _num_heard             # of these, leading rows of which each token reaches the client
    cdef const int32_t* _targets        # [row] tokens after which generation stops: by itself, at max_tokens, or at
                                        # max_model_len; >= 1, for one is always sampled
    cdef const int8_t* _rejected        # [row] is it rejected with its first token? NULL: none is
    cdef Recorder _recorder
    cdef Departures _departures
    cdef readonly object pool_cuts      # bool (requests,), whose answers the KV pool may cut; None: nobody's
    cdef readonly object last_tokens    # the array behind last_token_ns, shared by the pools of a cluster
    cdef object _owners                 # the arrays the other pointers borrow from

    # Tokens after which the generation of `row` stops. The engine asks; no policy may.
    cdef inline int32_t target(self, int32_t row) noexcept nogil:
        return self._targets[row]

    cdef inline const int32_t* targets(self) noexcept nogil:
        return self._targets

    # Is a request rejected with its first token? It is sampled, and reaches no client.
    cdef inline bint rejects(self, int32_t row) noexcept nogil:
        return self._rejected != NULL and self._rejected[row]

    # When the client sees the `count`-th token (from 1) of a request, which leaves the engine at `now_ns`.
    cdef inline int64_t observed_ns(self, int64_t now_ns, int32_t count) noexcept nogil:
        return now_ns + self.output_ns + self.gap_ns * (count - 1)

    # When a request is complete whose last token leaves the engine at `now_ns`; one that keeps no token is at once.
    cdef inline int64_t completed_ns(self, int32_t row, int64_t now_ns) noexcept nogil:
        cdef int32_t tokens = self._requests[row].output_tokens
        return self.observed_ns(now_ns, tokens) + self.completion_ns if tokens > 0 else now_ns + self.output_ns

    # `tokens` more tokens (>= 1) leave the engine in one message; not used for group members, whose tokens are counted.
    # What a prefill leg samples reaches no client.
    cdef int deliver(self, int32_t row, int32_t tokens, int64_t now_ns) except -1 nogil

    # A request leaves for good with this RequestStatus; `now_ns`, engine time, counts only if it is completed. One
    # whose client had tokens already is not rejected or dropped, but failed.
    cdef void leave(self, int32_t row, int8_t status, int64_t now_ns) noexcept nogil
