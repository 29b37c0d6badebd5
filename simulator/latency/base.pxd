"""How long an iteration takes: the one question the engine asks."""
cimport cython
from libc.math cimport floor
from libc.stdint cimport int32_t, int64_t

from simulator.core.arithmetic cimport round_half_up
from simulator.domain.batch cimport BatchShape
from simulator.collective.base cimport CollectiveModel
from simulator.latency.gathering cimport Gathered

cdef extern from *:
    const int64_t LONGEST_ITERATION_NS "INT64_C(1000000000000000000)"    # 31 years; what is longer is cut to it


cdef class LatencyModel:
    cdef readonly bint failed           # a time could not be given; see has_failed()
    cdef readonly bint is_monotone      # more sequences, tokens or context never make an iteration shorter, and none
                                        # fails; set by the backend
    cdef readonly bint is_shareable     # batch_ns writes nothing, and several threads may ask; set by the backend
    cdef readonly bint prices_spread    # unequal contexts of a batch have a price; set by the backend
    cdef readonly bint pads             # it has a say in how batches are padded
    cdef public bint keeps_account      # it counts what it is asked, see `count`; set by the backend
    cdef readonly int32_t weight        # what is asked now counts so many times, see `count`
    cdef readonly bint is_ahead         # it is planned, and may be taken back
    cdef CollectiveModel _collective    # prices communication; None: there is none, or the backend prices it itself
    cdef double _host_iteration_ns      # added to every iteration, [latency.host] iteration_us
    cdef double _host_sequence_ns       # and for each sequence of it, sequence_us
    cdef int64_t _resolution_ns         # 0: nearest ns; else truncate to whole multiples of this, at least one
    cdef bint _pads_gathered            # ranks in lock step bring the tokens that SGLang gathers, see gathering.pxd
    cdef readonly int32_t num_stages    # pipeline stages of the replica
    cdef double* _stage_shares          # [num_stages] of the layers; NULL: one stage
    cdef double* _stage_ns              # [num_stages] scratch

    # Nanoseconds of accelerator time for a batch of at least one token: a pure function of the shape. Backends override
    # this.
    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil

    # Where `pads`: settle graph and pad_tokens of batches that execute together, of ranks in lock step, of which
    # `num_busy` have tokens; one alone is a rank, too. A shape that nobody has settled is priced as if it were alone.
    cdef void pad(self, BatchShape* shapes, int32_t num_busy, int32_t num_ranks) noexcept nogil

    # The same for each pipeline stage, its hand-over to the next one included: fill in `ns`, [num_stages]. Backends
    # that know better override this; here batch_ns is shared out by layers.
    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil

    # Divide by layers what all of them take; a hand-over follows each stage but the last, which has its own `last_ns`.
    @cython.final
    cdef inline void spread(self, double layers_ns, double handover_ns, double last_ns, double* ns) noexcept nogil:
        cdef int32_t i
        for i in range(self.num_stages):
            ns[i] = layers_ns * self._stage_shares[i] + handover_ns
        ns[self.num_stages - 1] += last_ns - handover_ns

    # From now on what is asked counts so many times: 1, at first; 0, not at all. An iteration planned ahead counts, and
    # -1 times if it is asked for again as it will not execute. So counts are of iterations that execute. What cannot be
    # taken back, a record, is not set ahead: the model fails instead, and is asked when the iteration executes.
    cdef void count(self, int32_t weight, bint is_ahead) noexcept nogil

    # Somebody has to be told which is which: this model, or what it asks, keeps account.
    @cython.final
    cdef inline bint has_account(self) noexcept nogil:
        return self.keeps_account or (self._collective is not None and self._collective.keeps_account)

    # True: the last time means nothing, the caller stops and calls raise_if_failed().
    @cython.final
    cdef inline bint has_failed(self) noexcept nogil:
        return self.failed or (self._collective is not None and self._collective.failed)

    # What the engine calls: batch_ns plus host time, rounded once, at least 1 ns.
    @cython.final
    cdef inline int64_t iteration_ns(self, const BatchShape* shape) noexcept nogil:
        return self.rounded_ns(self.batch_ns(shape) + self.host_ns(shape))

    # Of it, what the host takes.
    @cython.final
    cdef inline double host_ns(self, const BatchShape* shape) noexcept nogil:
        return self._host_iteration_ns + self._host_sequence_ns * shape.num_sequences

    # How long an iteration of `num_ranks` ranks in lock step takes, of which these have tokens; host time included,
    # rounded: as long as that of the slowest. Here, and only here, the shapes of all ranks are known together.
    @cython.final
    cdef int64_t step_ns(self, const BatchShape* shapes, int32_t num_busy, int32_t num_ranks) noexcept nogil

    # Nanoseconds of accelerator time of a rank with this batch, where all `num_ranks` ranks together bring `gathered`
    # tokens to the experts. By default those of its batch alone; backends for which a batch is that of the whole
    # replica, spread over its ranks, override it.
    cdef double rank_ns(self, const BatchShape* shape, const Gathered* gathered, int32_t num_ranks) noexcept nogil

    # Times are truncated to whole multiples of this; 0: rounded to the nearest ns.
    @cython.final
    cdef inline int64_t resolution_ns(self) noexcept nogil:
        return self._resolution_ns

    # Add `factor` times the host time of another model to each iteration, and round as that one does.
    @cython.final
    cdef void take_host_of(self, LatencyModel model, double factor) noexcept nogil

    # No iteration is shorter. Of monotone models that is the one of a single token, of others the host's share.
    @cython.final
    cdef int64_t least_ns(self) noexcept nogil

    # What it calls with several stages: fill in the time in each, `durations_ns`, [num_stages]. Host time belongs to
    # the first. The time up to the end of each stage is what is rounded: together they take iteration_ns.
    cdef void stage_durations_ns(self, const BatchShape* shape, int64_t* durations_ns) noexcept nogil

    @cython.final
    cdef inline int64_t rounded_ns(self, double ns) noexcept nogil:
        cdef int64_t whole
        if not ns <= LONGEST_ITERATION_NS:       # not a number neither
            ns = LONGEST_ITERATION_NS
        if self._resolution_ns > 0:
            whole = <int64_t>floor(ns / self._resolution_ns) * self._resolution_ns
            return whole if whole > 0 else self._resolution_ns
        whole = round_half_up(ns)
        return whole if whole > 0 else 1
