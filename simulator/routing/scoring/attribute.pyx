"""Scorers by facts of a replica's pool, and by a number of a replica that a user names."""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.routing.parts.attribute cimport IN_FLIGHT_TOKENS, Attribute, attribute_named, attribute_of, has_reported
from simulator.routing.scoring.base cimport Scorer

from simulator.routing.parts.attribute import AttributeName


class ContextLengthParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score how well the prompt fits [a, b], the context_range of the pool.

    n prompt tokens within the range: 0.3 + 0.7 (0.7 / (1 + (b - a) / 10000) + 0.3 (b - n) / (b - a)), 1 if a = b;
    outside, at a distance of d tokens: 0.3 / (1 + d / 1000); a pool without a range: 0.5.
    Source: context-length-aware scorer of llm-d-router ebab6879; its ranges are labels of pods.
    """


cdef struct Range:
    double least
    double most                         # below 0: there is no range


@cython.final
cdef class ContextLength(Scorer):
    """Replicas that are meant for prompts of this length are better."""

    Parameters = ContextLengthParameters

    cdef Range* _ranges                 # [pool]

    def __cinit__(self, parameters, context):
        self._ranges = <Range*>calloc(len(context.pools) + 1, sizeof(Range))
        if self._ranges == NULL:
            raise MemoryError()
        self._ranges[0].most = -1.0
        for number, pool in enumerate(context.pools):
            least, most = pool.context_range or (0, -1)
            self._ranges[<int32_t>number] = Range(least, most)

    def __init__(self, parameters, context):
        self.is_per_request = True

    def __dealloc__(self):
        free(self._ranges)

    cdef int rate(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef double tokens = self.requests[row].prompt_tokens
        cdef int32_t i
        for i in range(self.num_replicas):
            self.values[i] = fit_of(&self._ranges[self.view.accounts[i].pool], tokens)
        return 1


cdef inline double fit_of(const Range* meant, double tokens) noexcept nogil:
    cdef double width = meant.most - meant.least
    if meant.most < 0.0:
        return 0.5
    if tokens < meant.least:
        return 0.3 / (1.0 + (meant.least - tokens) / 1000.0)
    if tokens > meant.most:
        return 0.3 / (1.0 + (tokens - meant.most) / 1000.0)
    if width == 0.0:
        return 1.0
    return 0.3 + 0.7 * (0.7 / (1.0 + width / 10000.0) + 0.3 * (meant.most - tokens) / width)


class EndpointAttributeParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Score (v - least) / (most - least) of a number v, or 1 less that.

    least and most are those of the candidates, or of value_range; 1 if they are equal. A replica that never reported
    scores 0. Source: endpoint-attribute-scorer of llm-d-router ebab6879; its attributes are any that data producers
    write, here a list.
    """

    attribute: AttributeName = "in_flight"
    prefer: Annotated[Literal["lower", "higher"], Meta(description="numbers that score higher")] = "lower"
    value_range: Annotated[tuple[Annotated[float, Meta(ge=-1e15, le=1e15)], ...], Meta(
        extra={"unit": "that of the attribute"}, description=(
            "[least, most] between which numbers are ranked; absent: the extremes among the candidates"))] = ()

    def __post_init__(self):
        if self.value_range and not (len(self.value_range) == 2 and self.value_range[0] < self.value_range[1]):
            raise ValueError(f"value_range = {list(self.value_range)}: give [least, most], the first below the second")


@cython.final
cdef class EndpointAttribute(Scorer):
    """Replicas with a lower, or a higher, number are better."""

    Parameters = EndpointAttributeParameters

    cdef Attribute _attribute
    cdef bint _prefers_lower, _is_fixed
    cdef double _least, _most           # with a fixed range

    @classmethod
    def reads_account(cls, parameters):
        """See Scorer."""
        return parameters.attribute in ("in_flight", "in_flight_tokens")

    def __init__(self, parameters, context):
        self._attribute = attribute_named(parameters.attribute, self.view)
        self._prefers_lower = parameters.prefer == "lower"
        self._is_fixed = bool(parameters.value_range)
        if self._is_fixed:
            self._least, self._most = parameters.value_range

    cdef int rate(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef double least = INFINITY, most = -INFINITY, share
        cdef int32_t i
        for i in range(self.num_replicas):
            if self.takes_part(i) and self._is_known(i):
                self.values[i] = attribute_of(self._attribute, self.view, i)
                least, most = min(least, self.values[i]), max(most, self.values[i])
        if self._is_fixed:
            least, most = self._least, self._most
        for i in range(self.num_replicas):
            if self.takes_part(i) and self._is_known(i):
                share = min(max((self.values[i] - least) / (most - least), 0.0), 1.0) if most > least else 1.0
                self.values[i] = 1.0 - share if self._prefers_lower and most > least else share
            else:
                self.values[i] = 0.0
        return 1

    cdef inline bint _is_known(self, int32_t replica) noexcept nogil:
        return self._attribute <= IN_FLIGHT_TOKENS or has_reported(self.view, replica)
