"""Base of all saturation detectors: the saturation of the replicas behind a gate."""


cdef class SaturationDetector:
    """Base of all saturation detectors; one overrides `saturation`.

    A detector is built as `Detector(parameters, context)`, with its own frozen `Parameters` and an `AdmissionContext`.
    """

    def __cinit__(self, parameters, context, *_, **__):
        self.view = context.view

    cdef double saturation(self, int64_t now_ns) except -1.0 nogil:
        return 0.0

    def measure(self, now_ns):
        """Return the saturation, as a gateway queue calls it (for Python and tests)."""
        return self.saturation(now_ns)
