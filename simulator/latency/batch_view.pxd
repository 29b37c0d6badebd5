"""A batch that Python can build and read."""
from simulator.domain.batch cimport BatchShape, Chunk


cdef class BatchView:
    cdef BatchShape shape           # argument of latency models
    cdef Chunk* _chunks             # chunks this view owns; NULL: it shows a batch of the engine

    # Show a batch of the engine; valid until the next call, and its chunks only until `hide_chunks`.
    cdef void show(self, const BatchShape* shape) noexcept
    cdef void hide_chunks(self) noexcept
