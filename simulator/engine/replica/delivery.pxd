"""Output to the clients: tokens, and the end of each request.

The only place with the true lengths of answers.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.domain.request cimport Outcome, Request
from simulator.engine.replica.departures cimport Departures
from simulator.engine.output.recorder cimport Recorder

cdef enum:
    NO_TOKEN_NS = -1                    # no token has left the engine yet
    VOID_TOKEN_NS = -2                  # some had; the request restarted, and those tokens do not count


@cython.final
cdef class Delivery:
    cdef readonly int64_t output_ns     # added to each observed token time, [latency.host] output_token_us
    cdef readonly int64_t gap_ns        # added once more for each earlier token: output_ns if it accumulates, else 0
    cdef readonly int64_t completion_ns     # from the last token to completion, [latency.host] completion_us
    cdef int64_t* last_token_ns  # [row] engine time of the last token, or as above; of a group member: of its first
    cdef Request* _requests
    cdef const Outcome* _outcomes
    cdef int64_t _num_clients           # clients' rows; those behind are prefill legs of requests
    cdef int64_t _num_heard             # leading rows with each token sent to the client
    cdef const int32_t* _targets        # [row] tokens after which generation stops: by itself, at max_tokens, or at
                                        # max_model_len; >= 1, as at least one is sampled
    cdef const int8_t* _rejected        # [row] 1: rejected with its first token; NULL: none is
    cdef Recorder _recorder
    cdef Departures _departures
    cdef readonly object pool_cuts      # bool (requests,), answers that the KV pool may cut; None: none
    cdef readonly object last_tokens    # the array behind last_token_ns, shared by the pools of a cluster
    cdef object _owners                 # owners of the other borrowed arrays

    # Return the tokens after which the generation of `row` stops. For the engine only: no policy may use it.
    cdef inline int32_t target(self, int32_t row) noexcept nogil:
        return self._targets[row]

    cdef inline const int32_t* targets(self) noexcept nogil:
        return self._targets

    # Return whether a request is rejected with its first token, which is sampled, but reaches no client.
    cdef inline bint rejects(self, int32_t row) noexcept nogil:
        return self._rejected != NULL and self._rejected[row]

    # Return when the client sees the `count`-th token (from 1) of a request, which leaves the engine at `now_ns`.
    cdef inline int64_t observed_ns(self, int64_t now_ns, int32_t count) noexcept nogil:
        return now_ns + self.output_ns + self.gap_ns * (count - 1)

    # Return when a request is complete if its last token leaves the engine at `now_ns`; without output tokens, at once.
    cdef inline int64_t completed_ns(self, int32_t row, int64_t now_ns) noexcept nogil:
        cdef int32_t tokens = self._requests[row].output_tokens
        return self.observed_ns(now_ns, tokens) + self.completion_ns if tokens > 0 else now_ns + self.output_ns

    # `tokens` more tokens (>= 1) leave the engine in one message; not for group members, which are counted in bulk.
    # The token sampled by a prefill leg reaches no client.
    cdef int deliver(self, int32_t row, int32_t tokens, int64_t now_ns) except -1 nogil

    # A request leaves for good with this RequestStatus; `now_ns`, engine time, counts only if it is completed. If its
    # client has received tokens, it is failed in place of rejected or dropped.
    cdef void leave(self, int32_t row, int8_t status, int64_t now_ns) noexcept nogil
