"""Predicted latencies of a request at a replica, a line in place of a trained model.

TTFT = token_us x (prompt tokens that wait or run there + those of the request) + one step; TPOT = one step = base_us +
sequence_us x (waiting + running + 1).
"""
from libc.stdint cimport int32_t
cimport cython

from simulator.signals.view cimport View


cdef struct Prices:
    double base_us              # of an iteration
    double sequence_us          # of a request that waits or runs
    double token_us             # of a prompt token


cdef inline double predicted_tpot_us(View view, int32_t replica, const Prices* prices) noexcept nogil:
    cdef int32_t sequences = view.states[replica].waiting + view.states[replica].running + 1
    return prices.base_us + prices.sequence_us * sequences


# tpot_us : predicted_tpot_us of the replica.
cdef inline double predicted_ttft_us(View view, int32_t replica, int32_t prompt_tokens, double tpot_us,
                                     const Prices* prices) noexcept nogil:
    return tpot_us + prices.token_us * <double>(
        view.states[replica].waiting_prefill_tokens + view.states[replica].running_prefill_tokens + prompt_tokens)


@cython.final
cdef class InTime:
    cdef Prices _prices
    cdef const double* _targets_us      # [class + 1][TTFT, TPOT]; the first is that of requests without a class
    cdef object _arrays                 # owners of this memory

    # Are both predicted latencies of a request within the targets of its SLO class, -1: of none?
    cdef bint holds(self, View view, int32_t slo_class, int32_t prompt_tokens, int32_t replica) noexcept nogil
