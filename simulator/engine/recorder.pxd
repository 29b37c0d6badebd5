"""What is written down while the simulation runs, because it could not be recovered afterwards."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.tables cimport IterationRow, TokenRow


@cython.final
cdef class Recorder:
    cdef readonly bint wants_iterations         # rows of /iterations
    cdef readonly bint wants_tokens             # rows of /token_times
    cdef readonly int64_t iterations            # ended so far, over all replicas
    cdef readonly int64_t finished              # requests that left, one way or another
    cdef object _sink                           # .iterations(rows), .tokens(rows)
    cdef object _iteration_rows                 # arrays these pointers borrow from
    cdef object _token_rows
    cdef IterationRow* _iterations
    cdef TokenRow* _tokens
    cdef int64_t num_iterations, num_tokens     # rows held
    cdef int64_t _room_iterations, _room_tokens
    cdef int64_t* _gaps                         # inter-token samples: gap in ns ...
    cdef int32_t* _counts                       # ... and how many tokens had it
    cdef int64_t _num_samples, _room_samples

    # `count` tokens came `gap_ns` after the one before them in their request.
    cdef inline int sample(self, int64_t gap_ns, int32_t count) except -1 nogil:
        if self._num_samples == self._room_samples:
            self._grow_samples()
        self._gaps[self._num_samples] = gap_ns
        self._counts[self._num_samples] = count
        self._num_samples += 1
        return 0

    cdef inline int token(self, int32_t row, int64_t time_ns, int32_t tokens) except -1 nogil:
        if self.num_tokens == self._room_tokens:
            self._flush_tokens()
        self._tokens[self.num_tokens].time_ns = time_ns
        self._tokens[self.num_tokens].request = row
        self._tokens[self.num_tokens].tokens = tokens
        self.num_tokens += 1
        return 0

    # A row to fill in.
    cdef inline IterationRow* iteration(self) except NULL nogil:
        if self.num_iterations == self._room_iterations:
            self._grow_iterations()
        self.num_iterations += 1
        return &self._iterations[self.num_iterations - 1]

    cdef int _grow_samples(self) except -1 nogil
    cdef int _grow_iterations(self) except -1 nogil
    cdef int _flush_tokens(self) except -1 nogil
