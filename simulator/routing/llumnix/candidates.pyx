"""Llumnix's input for each replica at a decision, with the cached part of the prompt in whole chunks of its index.

Source: llumnix-project/llumnix at 8a693b4, prefix_cache_utils.go.
"""
import numpy as np

from simulator.routing.llumnix.composition import METRIC_NAMES


_FIELDS = (     # in the order of the struct
    ("i8", "time_ns hit_tokens miss_tokens predicted_tokens"), ("i4", "waiting running loading"),
    ("i1", "infer_type reserved is_schedulable needs_failover"),
    ("i4", "node unit data_parallel_size max_batched_tokens"),
    ("i8", "waiting_prefill_tokens running_prefill_tokens in_flight_prefill_tokens in_flight_decode_tokens"),
    ("i8", "total_tokens used_tokens unallocated_prefill_tokens hybrid_unallocated_tokens"),
    ("i8", "hybrid_decode_tokens waiting_decode_tokens running_decode_tokens loading_tokens"),
    ("i4", "hybrid_decodes waiting_decodes running_decodes in_flight_decodes in_flight_prefills in_flight"),
    ("i8", "step lite_tokens"), ("i4", "lite_requests is_silent"), ("i8", "headroom_tokens"))

CANDIDATE = np.dtype([(name, kind) for kind, names in _FIELDS for name in names.split()], align=True)
if CANDIDATE.itemsize != sizeof(Candidate):
    raise ImportError("CANDIDATE and the struct Candidate differ")


cdef class Candidates:
    """Replicas to choose from, and the values of their metrics.

    count : how many.
    ttft, tpot : ProfileTable; None: `predicted_ttft` and `predicted_tpot` are infinite.
    """

    def __init__(self, int32_t count, ProfileTable ttft=None, ProfileTable tpot=None):
        cdef Candidate[::1] items
        cdef float[:, ::1] metrics
        cdef int8_t[::1] flags
        if count < 1:
            raise ValueError(f"count must be >= 1, found {count}")
        self.count = count
        self.array = np.zeros(count, CANDIDATE)
        self.array["node"] = self.array["unit"] = -1
        self.array["data_parallel_size"] = self.array["is_schedulable"] = 1
        self.metric_array = np.zeros((len(METRIC_NAMES), count), np.float32)
        self._flag_array = np.zeros(count, np.int8)
        items, metrics, flags = self.array, self.metric_array, self._flag_array
        self.items, self.metrics, self.flags = &items[0], &metrics[0, 0], &flags[0]
        self.ttft = ttft or ProfileTable(())
        self.tpot = tpot or ProfileTable(())

    cdef void begin(self, int64_t now_ns) noexcept nogil:
        cdef int32_t i
        self.now_ns = now_ns
        for i in range(self.count):
            self.items[i].needs_failover = False
            self.items[i].hit_tokens = self.items[i].miss_tokens = self.items[i].predicted_tokens = 0

cdef int32_t run_of_chunks(const int8_t* held, int32_t num_chunks, bint may_begin_late) noexcept nogil:
    cdef int32_t first = 0, end
    while may_begin_late and first < num_chunks and not held[first]:
        first += 1
    end = first
    while end < num_chunks and held[end]:
        end += 1
    return end - first
