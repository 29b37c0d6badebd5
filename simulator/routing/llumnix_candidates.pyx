"""What Llumnix's scheduler knows of each replica when it chooses."""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.routing.llumnix_profiles cimport ProfileTable

import numpy as np

from simulator.routing.llumnix_names import METRIC_NAMES

_LONG = ("time_ns step total_tokens used_tokens waiting_prefill_tokens running_prefill_tokens "
         "unallocated_prefill_tokens hybrid_unallocated_tokens hybrid_decode_tokens waiting_decode_tokens "
         "running_decode_tokens loading_tokens")
_COUNTS = "hybrid_decodes waiting_decodes running_decodes loading waiting running"
_FIELDS = (
    [(name, "i8") for name in _LONG.split()] + [(name, "i4") for name in _COUNTS.split()]
    + [("in_flight_prefill_tokens", "i8"), ("in_flight_decode_tokens", "i8"), ("in_flight", "i4"),
       ("in_flight_prefills", "i4"), ("in_flight_decodes", "i4"), ("lite_requests", "i4"), ("lite_tokens", "i8")]
    + [(name, "i4") for name in ("node", "unit", "data_parallel_size", "max_batched_tokens")]
    + [(name, "i1") for name in ("infer_type", "reserved", "is_schedulable", "needs_failover")]
    + [(name, "i8") for name in ("hit_tokens", "miss_tokens", "predicted_tokens")])

CANDIDATE = np.dtype(_FIELDS, align=True)
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

    def begin_at(self, now_ns):
        """Forget the last request and set the clock (for Python and tests)."""
        self.begin(now_ns)

    def set_clock(self, now_ns):
        """Set the clock alone (for tests)."""
        self.now_ns = now_ns
