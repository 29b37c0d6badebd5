"""Base class of latency models written in Python: slow, but the shortest way to try an idea."""
from simulator.domain.batch cimport BatchShape
from simulator.latency.base cimport LatencyModel
from simulator.latency.batch_view cimport BatchView


cdef class PythonLatencyModel(LatencyModel):
    """Base of latency models written in Python: override `batch_us`.

    The experiment names the subclass: `backend = "my_lab.latency:TwoTier"`.

    Give the class a frozen `msgspec.Struct` as `Parameters` to have keys of [latency] read, checked and passed on.

        class TwoTier(PythonLatencyModel):
            def batch_us(self, shape):
                return 4000.0 if shape.num_decodes <= 64 else 9000.0

    Each iteration costs a Python call, about a microsecond. The shape is valid only during the call: copy values
    to keep. An exception ends the simulation and is raised from `run`.
    """

    Parameters = None

    cdef readonly object parameters     # the keys of [latency], as `Parameters`
    cdef readonly object deployment     # simulator.domain.deployment.Deployment
    cdef BatchView _view                # reused for each call
    cdef object _error                  # first exception of batch_us

    def __init__(self, parameters=None, deployment=None):
        self.parameters = parameters
        self.deployment = deployment

    def __cinit__(self, *args, **kwargs):
        self._view = BatchView.__new__(BatchView)
        self._error = None

    def batch_us(self, shape) -> float:
        """Return the accelerator time in microseconds of the batch `shape`, a `BatchView`."""
        raise NotImplementedError(f"{type(self).__name__} must override batch_us")

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        if self.failed:                 # the engine is about to stop
            return 1.0
        with gil:
            return self._ask(shape)

    cdef double _ask(self, const BatchShape* shape) noexcept:
        cdef double us
        try:
            self._view.show(shape)
            found = self.batch_us(self._view)
            if not hasattr(found, "__float__"):
                raise TypeError(f"{type(self).__name__}.batch_us: expected a number of microseconds, found {found!r}")
            us = found
            if not 0.0 <= us < 1e15:
                raise ValueError(f"{type(self).__name__}.batch_us: expected microseconds >= 0, found {us}")
            return us * 1e3
        except BaseException as error:
            self._error = error
            self.failed = True
            return 1.0
        finally:
            self._view.hide_chunks()

    def raise_if_failed(self):
        """Raise the first exception of `batch_us`, once."""
        if self._error is not None:
            error, self._error, self.failed = self._error, None, False
            raise error
