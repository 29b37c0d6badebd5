"""The latest samples of each replica, and their mean or a percentile."""
from libc.math cimport ceil
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, qsort
from libc.string cimport memcpy, memmove, memset


cdef int compare(const void* a, const void* b) noexcept nogil:
    """Order two samples."""
    cdef double one = (<const double*>a)[0], other = (<const double*>b)[0]
    return (one > other) - (one < other)


cdef class LatestSamples:
    """The latest `length` samples of each of `num_replicas` replicas.

    percentile : as a share; None: `values` are means. Of n sorted samples it is number ceil(n x percentile), from 1.
    """

    def __cinit__(self, int32_t num_replicas, int32_t length, percentile=None):
        self.num_replicas, self._length = num_replicas, length
        self._percentile = -1.0 if percentile is None else percentile
        self._samples = <double*>calloc(<size_t>num_replicas * length, sizeof(double))
        self._sorted = <double*>calloc(length, sizeof(double))
        self.counts = <int32_t*>calloc(num_replicas, sizeof(int32_t))
        self.values = <double*>calloc(num_replicas, sizeof(double))
        if self._samples == NULL or self._sorted == NULL or self.counts == NULL or self.values == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self._samples)
        free(self._sorted)
        free(self.counts)
        free(self.values)

    cdef void add(self, int32_t replica, double sample) noexcept nogil:
        cdef double* samples = &self._samples[<int64_t>replica * self._length]
        if self.counts[replica] == self._length:
            memmove(samples, samples + 1, (self._length - 1) * sizeof(double))
            self.counts[replica] -= 1
        samples[self.counts[replica]] = sample
        self.counts[replica] += 1
        self.values[replica] = self._summary(samples, self.counts[replica])

    cdef void clear(self) noexcept nogil:
        memset(self.counts, 0, self.num_replicas * sizeof(int32_t))

    cdef double _summary(self, const double* samples, int32_t count) noexcept nogil:
        cdef double total = 0.0
        cdef int32_t i
        if self._percentile < 0.0:
            for i in range(count):
                total += samples[i]
            return total / count
        memcpy(self._sorted, samples, count * sizeof(double))
        qsort(self._sorted, count, sizeof(double), compare)
        return self._sorted[max(<int32_t>ceil(count * self._percentile) - 1, 0)]
