"""CUDA graphs: batches are padded to captured sizes.

Source: vLLM 0.32.0, vllm/v1/cudagraph_dispatcher.py, vllm/v1/worker/gpu/cudagraph_utils.py, and for ranks dp_utils.py.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport free, malloc
cimport cython

from simulator.domain.batch cimport EAGER, FULL, PIECEWISE, UNSETTLED, BatchShape
from simulator.latency.overheads.base cimport EngineOverhead
from simulator.latency.base cimport LatencyModel


@cython.final
cdef class Graphs(EngineOverhead):
    """A model that prices padded batches.

    Parameters
    ----------
    model : LatencyModel with `takes_padding`.
    mode : of `capture.Mode`.
    sizes : captured sizes in tokens, ascending.
    query_tokens : per decoding sequence, 1 + drafts; whole graphs of decodes have sizes divisible by it.
    piecewise_us : added to a batch with piecewise graphs.
    launch : `launches.Launching`: minimum time of a batch without graphs, and sentences for `warnings`.
    """

    cdef int32_t* _sizes            # [_largest + 1] by tokens: size of the smallest sufficient graph; 0: none
    cdef int32_t* _decode_sizes     # as _sizes, for batches in which all sequences decode
    cdef int64_t _largest
    cdef bint _has_pieces, _has_whole, _has_decodes
    cdef int32_t _query_tokens
    cdef double _piecewise_ns, _eager_ns, _prompt_eager_ns
    cdef object _notes

    def __init__(self, LatencyModel model, mode, sizes, int32_t query_tokens, double piecewise_us, launch):
        EngineOverhead.__init__(self, model)
        self._notes = launch.notes
        self.pads = True
        self._has_pieces = mode in ("piecewise", "full_and_piecewise")
        self._has_whole, self._has_decodes = mode == "full", mode in ("full_decode_only", "full_and_piecewise")
        self._query_tokens = query_tokens
        self._piecewise_ns = piecewise_us * 1e3
        self._prompt_eager_ns, self._eager_ns = launch.us * 1e3, launch.decode_us * 1e3
        self._largest = max(sizes, default=0)
        # with drafts some sizes are for decodes only, so that a batch with more tokens may be padded less
        self.is_monotone = model.is_monotone and query_tokens == 1
        self._sizes = _by_tokens(sizes, self._largest)
        self._decode_sizes = _by_tokens([size for size in sizes if size % query_tokens == 0], self._largest)

    def __dealloc__(self):
        free(self._sizes)
        free(self._decode_sizes)

    cdef bint _is_uniform(self, const BatchShape* shape) noexcept nogil:
        """Return whether each sequence computes `query_tokens` tokens, as a decoding one does."""
        cdef int32_t i
        if shape.decode_tokens != <int64_t>shape.num_decodes * self._query_tokens:
            return False
        for i in range(shape.num_chunks):
            if shape.chunks[i].tokens != self._query_tokens:
                return False
        return True

    cdef void pad(self, BatchShape* shapes, int32_t num_busy, int32_t num_ranks) noexcept nogil:
        """See LatencyModel: if one rank has no graph, no rank has, and none is padded; else all pad to the longest.

        A rank without tokens decodes a single dummy token. Piecewise graphs are used if a rank cannot use whole ones.
        """
        cdef bint is_uniform = True
        cdef int64_t most = num_busy < num_ranks, size = 0
        cdef int8_t graph = EAGER
        cdef int32_t i
        for i in range(num_busy):
            is_uniform = is_uniform and self._is_uniform(&shapes[i])
            most = max(most, shapes[i].prefill_tokens + shapes[i].decode_tokens)
        if most <= self._largest:
            if is_uniform and self._has_decodes and self._decode_sizes[most] > 0:
                graph, size = FULL, self._decode_sizes[most]
            elif self._has_whole or self._has_pieces:
                graph, size = FULL if self._has_whole else PIECEWISE, self._sizes[most]
        for i in range(num_busy):
            shapes[i].graph, shapes[i].pad_tokens = graph, 0
            if graph != EAGER:
                shapes[i].pad_tokens = <int32_t>(size - shapes[i].prefill_tokens - shapes[i].decode_tokens)

    def hide_prompts(self):
        """From now on batches with prompts have graphs of their own, without padding."""
        self._prompt_eager_ns = 0.0

    def warnings(self) -> list:
        """Return the warnings of the model, and notes on launches."""
        return [*self.model.warnings(), *self._notes]

    cdef double around_ns(self, const BatchShape* shape, double ns) noexcept nogil:
        if shape.graph == PIECEWISE:
            return ns + self._piecewise_ns
        if shape.graph != EAGER:
            return ns
        return max(ns, self._prompt_eager_ns if shape.prefill_tokens > 0 else self._eager_ns)

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        cdef BatchShape padded
        if shape.graph != UNSETTLED:
            return EngineOverhead.batch_ns(self, shape)
        padded = shape[0]
        self.pad(&padded, 1, 1)
        return EngineOverhead.batch_ns(self, &padded)

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        cdef BatchShape padded = shape[0]
        cdef double total = 0.0, factor
        cdef int32_t i
        if padded.graph == UNSETTLED:
            self.pad(&padded, 1, 1)
        self.model.stages_ns(&padded, ns)
        for i in range(self.num_stages):
            total += ns[i]
        factor = self.around_ns(&padded, total) / total if total > 0 else 1.0      # launches are proportional to layers
        for i in range(self.num_stages):
            ns[i] *= factor
        self.note_fault()


cdef int32_t* _by_tokens(sizes, int64_t largest) except NULL:
    """Return a table from tokens, 0 to `largest`, to the smallest sufficient size; 0: there is none."""
    cdef int32_t* table = <int32_t*>malloc((largest + 1) * sizeof(int32_t))
    cdef int64_t tokens
    cdef Py_ssize_t i = 0
    if table == NULL:
        raise MemoryError()
    for tokens in range(largest + 1):
        while i < len(sizes) and sizes[i] < tokens:
            i += 1
        table[tokens] = sizes[i] if i < len(sizes) else 0
    return table
