"""`sjf_aging`: shortest predicted job first, with ageing.

The request with the shortest predicted answer is admitted first, where `aging_tokens_per_s` is subtracted for each
second since it arrived: a request waits at most until later ones count as longer, whatever their predictions. As all
age alike, the order of two waiting requests never changes. Where blocks run out, the last request of that order is
preempted. Without a prediction ([workload.output_knowledge]) the declared limit is used.

Source: shortest job first with ageing, Silberschatz, Galvin and Gagne, Operating System Concepts, section 5.3; with
predicted lengths of answers, arXiv 2404.08509 and 2408.15792.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.request cimport Demand
from simulator.scheduling.ranked cimport Ranked, RequestRanking

from typing import Annotated

from msgspec import Meta

from simulator.scheduling.ranked import RankedParameters

cdef enum:
    NANO = 1_000_000_000


class SjfAgingParameters(RankedParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a batch, and the speed at which requests age."""

    aging_tokens_per_s: Annotated[float, Meta(ge=0, le=1e6, description=(
        "tokens by which an answer counts as shorter for each second since its request arrived; 0: none"))] = 10.0

    @property
    def reads_expected_tokens(self):
        """Return whether predictions of output lengths matter."""
        return True


@cython.final
cdef class AgedLength(RequestRanking):
    """Keys are lengths, in 1e-9 tokens, less the age at time 0 (negative)."""

    cdef double aging                   # 1e-9 tokens per ns

    cdef int64_t key(self, int32_t row) noexcept nogil:
        cdef const Demand* demand = &self.demands[row]
        cdef int64_t tokens = demand.expected_tokens if demand.expected_tokens >= 0 else demand.max_tokens
        return tokens * NANO + <int64_t>min(self.aging * <double>self.requests[row].arrival_ns, 4e18)


@cython.final
cdef class SjfAging(Ranked):
    """The shortest answer first, less its age; see `SjfAgingParameters`."""

    Parameters = SjfAgingParameters

    def __init__(self, parameters, context):
        Ranked.__init__(self, parameters, context)
        cdef AgedLength ranking = AgedLength(context)
        ranking.aging = parameters.aging_tokens_per_s
        self._evicts_last_ranked = True
        self._rank_by(context, ranking)
