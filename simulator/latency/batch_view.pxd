"""A batch that Python can build and read."""
from simulator.domain.batch cimport BatchShape, Chunk


cdef class BatchView:
    cdef BatchShape shape           # what a latency model is asked about
    cdef Chunk* _chunks             # chunks this view owns; NULL when it shows a batch of the engine

    # Show a batch of the engine; valid until the next call, and its chunks only until `hide_chunks`.
    cdef void show(self, const BatchShape* shape) noexcept
    cdef void hide_chunks(self) noexcept
