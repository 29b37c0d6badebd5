"""Time of each operator over all iterations: a latency model that also calls one model per operator, and sums up."""
from libc.stdint cimport int32_t, int64_t
from libc.math cimport floor
cimport cython

from simulator.domain.batch cimport BatchShape
from simulator.latency.overheads.base cimport EngineOverhead
from simulator.latency.base cimport LatencyModel
from simulator.latency.gathering cimport Gathered


cdef enum:
    PARTS_PER_NS = 1 << 20      # fixed-point fractions: a sum of integers does not depend on the order


@cython.final
cdef class Part:
    """A model of one part, in a linked list.

    Parameters
    ----------
    name : name of the part.
    model : LatencyModel.
    following : Part
        The next part; None: there is none.
    """

    cdef readonly object name
    cdef int64_t _whole_ns, _parts_of_ns        # of all iterations so far
    cdef LatencyModel _model
    cdef readonly Part following

    def __init__(self, name, LatencyModel model, Part following):
        self.name, self._model, self.following = name, model, following

    @property
    def ns(self) -> float:
        """Total time of all iterations so far."""
        return self._whole_ns + self._parts_of_ns / <double>PARTS_PER_NS

    cdef inline void _add(self, double ns, int32_t weight) noexcept nogil:
        cdef double whole_ns = floor(ns)
        self._whole_ns += weight * <int64_t>whole_ns
        self._parts_of_ns += weight * <int64_t>((ns - whole_ns) * PARTS_PER_NS)

    cdef void ask(self, const BatchShape* shape, int32_t weight) noexcept nogil:
        self._add(self._model.batch_ns(shape), weight)
        if self.following is not None:
            self.following.ask(shape, weight)

    cdef void ask_rank(self, const BatchShape* shape, const Gathered* gathered, int32_t num_ranks,
                       int32_t weight) noexcept nogil:
        self._add(self._model.rank_ns(shape, gathered, num_ranks), weight)
        if self.following is not None:
            self.following.ask_rank(shape, gathered, num_ranks, weight)


@cython.final
cdef class Attribution(EngineOverhead):
    """A latency model that returns the times of `model` and sums up its parts.

    Parameters
    ----------
    model : LatencyModel.
    parts : (name, LatencyModel) each.
    """

    cdef Part _parts

    def __init__(self, LatencyModel model, parts):
        EngineOverhead.__init__(self, model)
        self.is_shareable, self.keeps_account = False, True
        for name, part in parts:
            self._parts = Part(name, part, self._parts)

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        if self.weight != 0 and self._parts is not None:
            self._parts.ask(shape, self.weight)
        return EngineOverhead.batch_ns(self, shape)

    cdef double rank_ns(self, const BatchShape* shape, const Gathered* gathered, int32_t num_ranks) noexcept nogil:
        if self.weight != 0 and self._parts is not None:
            self._parts.ask_rank(shape, gathered, num_ranks, self.weight)
        return EngineOverhead.rank_ns(self, shape, gathered, num_ranks)

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        if self.weight != 0 and self._parts is not None:
            self._parts.ask(shape, self.weight)
        EngineOverhead.stages_ns(self, shape, ns)

    def set_stages(self, layers):
        """Set the number of layers of each pipeline stage, here and in `model`."""
        self.model.set_stages(layers)
        EngineOverhead.set_stages(self, layers)

    def times_ns(self) -> dict:
        """Return the total time of each part over all iterations so far."""
        found, part = {}, self._parts
        while part is not None:
            found[part.name], part = part.ns, part.following
        return found
