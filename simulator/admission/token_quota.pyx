"""`token_quota`: tokens of a fixed window of time, counted when requests end."""
cimport cython
from libc.stdint cimport int32_t, int64_t
from typing import Annotated, Literal

from simulator.admission.base cimport Admission
from simulator.core.clock cimport ns_from_s

import msgspec
from msgspec import Meta
import numpy as np


class TokenQuotaParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request is let in while fewer tokens than the quota are counted in its window.

    Windows follow each other from time 0 on. The tokens of a request are counted when it leaves its replica, in the
    window of that instant: requests in flight are not counted yet, so that the quota may be exceeded. Source:
    usage-based rate limiting of Envoy AI Gateway, llmRequestCosts (its documentation, 2026).
    """

    tokens: Annotated[int, Meta(ge=1, le=2**53, description="quota of tokens of a window")] = 100_000
    window_s: Annotated[float, Meta(ge=1e-3, le=1e6, description="length of a window")] = 60.0
    cost: Annotated[Literal["input", "output", "total"], Meta(description=(
        "tokens that are counted: those of the prompt, those generated, or both"))] = "total"
    shared_by: Annotated[Literal["all", "tenant"], Meta(description=(
        "requests with one quota together: all, or those of a tenant; requests without a tenant are one more"))] = "all"


@cython.final
cdef class TokenQuota(Admission):
    """So many tokens a window; requests in flight are counted when they leave."""

    Parameters = TokenQuotaParameters

    cdef int64_t _quota, _window_ns, _window
    cdef bint _has_input, _has_output, _is_shared
    cdef int64_t[::1] _counted          # [tenant + 1] in the window `_window`

    def __init__(self, parameters, context):
        self._quota, self._window_ns = parameters.tokens, ns_from_s(parameters.window_s)
        self._has_input, self._has_output = parameters.cost != "output", parameters.cost != "input"
        self._is_shared = parameters.shared_by == "all"
        self._counted = np.zeros(1 + len(context.workload.labels.get("tenant", ())), np.int64)
        self.reads_state = True         # it must be notified when requests leave

    cdef int admit(self, int32_t row, int64_t now_ns) except -1 nogil:
        self._turn_to(now_ns)
        return self._counted[self._counter_of(row)] < self._quota

    cdef int left(self, int32_t row, int64_t now_ns) except -1 nogil:
        self._turn_to(now_ns)
        self._counted[self._counter_of(row)] += (
            self._has_input * self.requests[row].prompt_tokens + self._has_output * self.requests[row].output_tokens)
        return 0

    cdef inline int32_t _counter_of(self, int32_t row) noexcept nogil:
        return 0 if self._is_shared else self.demands[row].tenant + 1

    cdef void _turn_to(self, int64_t now_ns) noexcept nogil:
        """Begin the window of an instant, if it is a new one."""
        if now_ns // self._window_ns != self._window:
            self._window = now_ns // self._window_ns
            self._counted[:] = 0
