"""Filters by a number or a label of a replica that a user names."""
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.routing.filters.base cimport EachAlone
from simulator.routing.parts.attribute cimport IN_FLIGHT_TOKENS, Attribute, attribute_named, attribute_of, has_reported

from simulator.routing.filters.load import FallBack
from simulator.routing.parts.attribute import AttributeName

cdef enum Operator:
    LESS = 0
    AT_MOST = 1
    EQUAL = 2
    UNEQUAL = 3
    AT_LEAST = 4
    MORE = 5

_OPERATORS = ("<", "<=", "==", "!=", ">=", ">")


class EndpointAttributeFilterParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keep the replicas with a number that compares as stated with a threshold.

    A replica that never reported stays. Source: endpoint-attribute-filter of llm-d-router ebab6879; its attributes are
    any that data producers write, here a list.
    """

    attribute: AttributeName
    operator: Annotated[Literal["<", "<=", "==", "!=", ">=", ">"], Meta(description=(
        "comparison of the number, on its left, with the threshold"))] = "<="
    threshold: Annotated[float, Meta(ge=-1e15, le=1e15, extra={"unit": "that of the attribute"}, description=(
        "number with which the attribute is compared"))]
    fallback_on_empty: FallBack = False


@cython.final
cdef class EndpointAttributeFilter(EachAlone):
    """Replicas with a number below, at or above a threshold."""

    Parameters = EndpointAttributeFilterParameters

    cdef Attribute _attribute
    cdef Operator _operator
    cdef double _threshold

    def __init__(self, parameters, context):
        self._attribute = attribute_named(parameters.attribute, self.view)
        self._operator = _OPERATORS.index(parameters.operator)
        self._threshold, self.falls_back = parameters.threshold, parameters.fallback_on_empty

    cdef bint passes(self, int32_t row, int32_t replica, int64_t now_ns) noexcept nogil:
        cdef double value
        if self._attribute > IN_FLIGHT_TOKENS and not has_reported(self.view, replica):
            return True
        value = attribute_of(self._attribute, self.view, replica)
        if self._operator == LESS:
            return value < self._threshold
        if self._operator == AT_MOST:
            return value <= self._threshold
        if self._operator == EQUAL:
            return value == self._threshold
        if self._operator == UNEQUAL:
            return value != self._threshold
        return value >= self._threshold if self._operator == AT_LEAST else value > self._threshold


class LabelSelectorParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keep the replicas of the named pools.

    Source: label-selector-filter of llm-d-router ebab6879; the label of a replica is here the name of its pool.
    """

    pools: Annotated[tuple[str, ...], Meta(min_length=1, description="names of pools with replicas that stay")]


@cython.final
cdef class LabelSelector(EachAlone):
    """Replicas of some pools."""

    Parameters = LabelSelectorParameters

    cdef int8_t* _is_named              # [pool]

    def __cinit__(self, parameters, context):
        self._is_named = <int8_t*>calloc(len(context.pools) + 1, sizeof(int8_t))
        if self._is_named == NULL:
            raise MemoryError()
        for number, pool in enumerate(context.pools):
            self._is_named[<int32_t>number] = pool.name in parameters.pools

    def __dealloc__(self):
        free(self._is_named)

    cdef bint passes(self, int32_t row, int32_t replica, int64_t now_ns) noexcept nogil:
        return self._is_named[self.view.accounts[replica].pool]
