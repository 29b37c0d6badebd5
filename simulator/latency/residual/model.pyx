"""Iterations as they were measured, on top of a latency model: the residual of a file of `calibrate`."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.batch cimport BatchShape
from simulator.latency.overheads.base cimport EngineOverhead
from simulator.latency.base cimport LatencyModel

import numpy as np


cdef enum:
    CURVES, ZONE, NUM_AXES = 3


cdef inline Py_ssize_t cell_of(const double[::1] knots, Py_ssize_t* last, double count) noexcept nogil:
    """Return the last knot that is no larger, and has one after it; `last`: that of the last call, a place to begin."""
    cdef Py_ssize_t i = last[0]
    while i < knots.shape[0] - 2 and knots[i + 1] <= count:
        i += 1
    while i > 0 and knots[i] > count:
        i -= 1
    last[0] = i
    return i


cdef inline double curve_ns(const double[::1] knots, const double[::1] values, const double[::1] slopes,
                            Py_ssize_t* last, double count) noexcept nogil:
    """Return the time that a count adds; beyond the last knot the last slope goes on."""
    cdef Py_ssize_t i = cell_of(knots, last, count)
    return values[i] + max(count - knots[i], 0.0) * slopes[i]


@cython.final
cdef class Residual(EngineOverhead):
    """Measured iterations on top of `model`, the prior.

    Parameters
    ----------
    model : LatencyModel, the prior.
    table : domain.step_table.StepTable. file, digest : path of its file and SHA-256, for readers.
    notes : sentences for `warnings`.

    Notes
    -----
    Formula: README.md of this folder. Beyond the zone it need not be monotone, since the prior may lie below.
    """

    cdef double _scale, _constant_ns, _least_ratio, _most_ratio
    cdef const double[::1] _prefill_knots, _prefill_ns, _prefill_slopes     # of curves: ns, ns per count
    cdef const double[::1] _sequence_knots, _sequence_ns, _sequence_slopes
    cdef const double[::1] _kv_knots, _kv_ns, _kv_slopes
    cdef const double[::1] _prefill_zone, _sequence_zone, _kv_zone          # knots
    cdef Py_ssize_t _last[2][<int>NUM_AXES]                                 # cells of the last call
    cdef const double[:, :, ::1] _weights
    cdef bint _is_made
    cdef int64_t _num_all, _num_partly, _num_beyond     # iterations; with a weight below 1, of 0
    cdef object _file, _digest, _notes

    def __init__(self, LatencyModel model, table, file="", digest="", notes=()):
        EngineOverhead.__init__(self, model)
        self.is_monotone, self.is_shareable, self.keeps_account = False, False, True
        self._scale, self._constant_ns = table.scale, 1e3 * table.constant_us
        self._least_ratio, self._most_ratio = table.least_ratio, table.most_ratio
        (self._prefill_knots, self._prefill_ns, self._prefill_slopes), (
            self._sequence_knots, self._sequence_ns, self._sequence_slopes), (
                self._kv_knots, self._kv_ns, self._kv_slopes) = map(_line, table.curves)
        self._prefill_zone, self._sequence_zone, self._kv_zone = [
            np.array(each, float) for each in table.zone.knots]
        self._weights = np.array(table.zone.weights, float).reshape([len(each) for each in table.zone.knots])
        self._file, self._digest, self._notes, self._is_made = file, digest, tuple(notes), True

    cdef double _weight_of(self, double prefill, double sequences, double kv) noexcept nogil:
        """Return the weight of the measurements: trilinear between knots, constant beyond them."""
        cdef Py_ssize_t i = cell_of(self._prefill_zone, &self._last[<int>ZONE][0], prefill)
        cdef Py_ssize_t j = cell_of(self._sequence_zone, &self._last[<int>ZONE][1], sequences)
        cdef Py_ssize_t k = cell_of(self._kv_zone, &self._last[<int>ZONE][2], kv)
        cdef double x = _share(self._prefill_zone, i, prefill), y = _share(self._sequence_zone, j, sequences)
        cdef double z = _share(self._kv_zone, k, kv)
        cdef const double[:, :, ::1] w = self._weights
        return ((1 - x) * ((1 - y) * ((1 - z) * w[i, j, k] + z * w[i, j, k + 1])
                           + y * ((1 - z) * w[i, j + 1, k] + z * w[i, j + 1, k + 1]))
                + x * ((1 - y) * ((1 - z) * w[i + 1, j, k] + z * w[i + 1, j, k + 1])
                       + y * ((1 - z) * w[i + 1, j + 1, k] + z * w[i + 1, j + 1, k + 1])))

    cdef double around_ns(self, const BatchShape* shape, double ns) noexcept nogil:
        cdef double prefill = <double>shape.prefill_tokens, sequences = <double>shape.num_sequences
        cdef double kv = <double>(shape.context_tokens + shape.prefill_context_tokens + shape.prefill_tokens)
        cdef double weight = self._weight_of(prefill, sequences, kv), measured_ns
        self._num_all += self.weight
        if weight < 1.0:
            self._num_partly += self.weight
            if weight <= 0.0:
                self._num_beyond += self.weight
                return ns
        measured_ns = (self._scale * ns + self._constant_ns
                       + curve_ns(self._prefill_knots, self._prefill_ns, self._prefill_slopes,
                                  &self._last[<int>CURVES][0], prefill)
                       + curve_ns(self._sequence_knots, self._sequence_ns, self._sequence_slopes,
                                  &self._last[<int>CURVES][1], sequences)
                       + curve_ns(self._kv_knots, self._kv_ns, self._kv_slopes, &self._last[<int>CURVES][2], kv))
        measured_ns = min(max(measured_ns, self._least_ratio * ns), self._most_ratio * ns)
        return ns + weight * (measured_ns - ns)

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        cdef double total = 0.0, factor
        cdef int32_t i
        self.model.stages_ns(shape, ns)
        self.note_fault()
        for i in range(self.num_stages):
            total += ns[i]
        factor = self.around_ns(shape, total) / total if total > 0 else 1.0
        for i in range(self.num_stages):
            ns[i] *= factor

    def set_stages(self, layers):
        """Set the number of layers of each pipeline stage, here and in the prior."""
        if self._is_made:
            self.model.set_stages(layers)
        EngineOverhead.set_stages(self, layers)

    @property
    def takes_padding(self):
        """Whether the prior prices padding."""
        return self.model.takes_padding

    @property
    def knows_kernels(self):
        """Whether the prior times kernels."""
        return self.model.knows_kernels

    @property
    def takes_collective(self):
        """Whether the prior may have a collective model."""
        return self.model.takes_collective

    def provenance(self) -> dict:
        """Return the provenance of the prior, the file of the residual, and iterations by place in its zone."""
        return self.model.provenance() | {"residual": {
            "file": self._file, "sha256": self._digest, "measured": self._num_all - self._num_partly,
            "partly": self._num_partly - self._num_beyond, "beyond": self._num_beyond}}

    def warnings(self) -> list:
        """Return the warnings of the prior, and the share of iterations outside the measured ones."""
        found = [*self.model.warnings(), *self._notes]
        if self._num_partly:
            found.append(
                f"latency.residual: {self._num_partly:,} of {self._num_all:,} iterations "
                f"({self._num_partly / <double>self._num_all:.1%}) lay outside the measured ones of {self._file}: "
                f"their times fall back to the latency model, {self._num_beyond:,} of them wholly")
        return found


def _line(curve) -> tuple:
    """Return the knots of a curve, its times in ns, and the slope after each knot but the last."""
    knots, ns = np.array(curve.knots, float), 1e3 * np.array(curve.added_us, float)
    return knots, ns, np.diff(ns) / np.diff(knots)


cdef inline double _share(const double[::1] knots, Py_ssize_t i, double count) noexcept nogil:
    return min(max((count - knots[i]) / (knots[i + 1] - knots[i]), 0.0), 1.0)
