"""Duration of an iteration: the interface between the engine and latency models."""
cimport cython
from libc.math cimport floor
from libc.stdint cimport int32_t, int64_t

from simulator.core.arithmetic cimport round_half_up
from simulator.domain.batch cimport BatchShape
from simulator.collective.base cimport CollectiveModel
from simulator.latency.gathering cimport Gathered

cdef extern from *:
    const int64_t LONGEST_ITERATION_NS "INT64_C(1000000000000000000)"    # 31 years; longer times are cut to it


cdef class LatencyModel:
    cdef readonly bint failed           # a time could not be computed; see has_failed()
    cdef readonly bint is_monotone      # more sequences, tokens or context never make an iteration shorter, and none
                                        # fails; set by the backend
    cdef readonly bint is_shareable     # batch_ns writes nothing, so several threads may call it; set by the backend
    cdef readonly bint prices_spread    # unequal contexts of a batch change its time; set by the backend
    cdef readonly bint pads             # pad() has an effect
    cdef public bint keeps_account      # it counts calls, see count(); set by the backend
    cdef readonly int32_t weight        # number of times that a call counts, see count()
    cdef readonly bint is_ahead         # calls are for planned iterations, which may be taken back
    cdef CollectiveModel _collective    # prices communication; None: none, or the backend prices it itself
    cdef double _host_iteration_ns      # added to every iteration, [latency.host] iteration_us
    cdef double _host_sequence_ns       # added per sequence of the iteration, sequence_us
    cdef int64_t _resolution_ns         # 0: nearest ns; else truncate to whole multiples of this, at least one
    cdef bint _pads_gathered            # ranks in lock step gather tokens as SGLang does, see gathering.pxd
    cdef readonly int32_t num_stages    # pipeline stages of the replica
    cdef double* _stage_shares          # [num_stages] share of the layers; NULL: one stage

    # Return the nanoseconds of accelerator time of a batch of at least one token: a pure function of the shape.
    # Backends override it.
    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil

    # If `pads`: set graph and pad_tokens of batches that execute together, on ranks in lock step of which `num_busy`
    # have tokens, or on a single rank. A shape without these values is priced as a single rank's.
    cdef void pad(self, BatchShape* shapes, int32_t num_busy, int32_t num_ranks) noexcept nogil

    # Fill in `ns`, [num_stages], the accelerator time of each pipeline stage, its hand-over to the next stage included.
    # The default divides batch_ns by layers; backends may override it.
    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil

    # Divide `layers_ns`, the time of all layers, by layers; each stage but the last adds a hand-over, the last
    # `last_ns`.
    @cython.final
    cdef inline void spread(self, double layers_ns, double handover_ns, double last_ns, double* ns) noexcept nogil:
        cdef int32_t i
        for i in range(self.num_stages):
            ns[i] = layers_ns * self._stage_shares[i] + handover_ns
        ns[self.num_stages - 1] += last_ns - handover_ns

    # Count each call `weight` times from now on: 1 (the initial state), or 0, not at all. An iteration that is planned
    # ahead counts, and counts -1 times in a repeated call if it will not execute, so that executed iterations are
    # counted. Values that cannot be taken back, such as maxima, must not change while `is_ahead`: the model fails
    # instead, and is called again when the iteration executes.
    cdef void count(self, int32_t weight, bint is_ahead) noexcept nogil

    # Whether count() must be called: this model, or its collective model, counts calls.
    @cython.final
    cdef inline bint has_account(self) noexcept nogil:
        return self.keeps_account or (self._collective is not None and self._collective.keeps_account)

    # True: the last time is invalid; the caller stops and calls raise_if_failed().
    @cython.final
    cdef inline bint has_failed(self) noexcept nogil:
        return self.failed or (self._collective is not None and self._collective.failed)

    # Return batch_ns plus host time, rounded once, at least 1 ns; called by the engine.
    @cython.final
    cdef inline int64_t iteration_ns(self, const BatchShape* shape) noexcept nogil:
        return self.rounded_ns(self.batch_ns(shape) + self.host_ns(shape))

    # Return the host time of a batch.
    @cython.final
    cdef inline double host_ns(self, const BatchShape* shape) noexcept nogil:
        return self._host_iteration_ns + self._host_sequence_ns * shape.num_sequences

    # Return the time of an iteration of `num_ranks` ranks in lock step, of which `num_busy` have tokens: the time of
    # the slowest rank, host time included, rounded. Only this method gets the shapes of all ranks.
    @cython.final
    cdef int64_t step_ns(self, const BatchShape* shapes, int32_t num_busy, int32_t num_ranks) noexcept nogil

    # Return the nanoseconds of accelerator time of a rank with this batch, if all `num_ranks` ranks together bring
    # `gathered` tokens to the experts. The default is batch_ns; backends that take a batch as the whole replica's,
    # spread over its ranks, override it.
    cdef double rank_ns(self, const BatchShape* shape, const Gathered* gathered, int32_t num_ranks) noexcept nogil

    # Times are truncated to whole multiples of this; 0: rounded to the nearest ns.
    @cython.final
    cdef inline int64_t resolution_ns(self) noexcept nogil:
        return self._resolution_ns

    # Add `factor` times the host time of `model` to each iteration, and round as `model` does.
    @cython.final
    cdef void take_host_of(self, LatencyModel model, double factor) noexcept nogil

    # Return a lower bound of all iterations: for monotone models one of a single token, for others the host time.
    @cython.final
    cdef int64_t least_ns(self) noexcept nogil

    # Fill in `durations_ns`, [num_stages], the time in each pipeline stage; called by the engine. Host time belongs to
    # the first stage. The end of each stage is rounded, so that the sum is iteration_ns.
    cdef void stage_durations_ns(self, const BatchShape* shape, int64_t* durations_ns) noexcept nogil

    @cython.final
    cdef inline int64_t rounded_ns(self, double ns) noexcept nogil:
        cdef int64_t whole
        if not ns <= LONGEST_ITERATION_NS:       # true for NaN, too
            ns = LONGEST_ITERATION_NS
        if self._resolution_ns > 0:
            whole = <int64_t>floor(ns / self._resolution_ns) * self._resolution_ns
            return whole if whole > 0 else self._resolution_ns
        whole = round_half_up(ns)
        return whole if whole > 0 else 1
