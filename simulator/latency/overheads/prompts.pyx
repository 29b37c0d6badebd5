"""Prefill context parallelism: ranks divide the prompts of a batch, and each computes all decodes.

With n ranks the q tokens that an iteration computes of a prompt are cut into 2 n slices of ceil(q / 2n), the last ones
shorter or empty, and rank r has slices r and 2n - 1 - r: this balances causal attention over the ranks. Each slice is a
separate row, a chunk that follows all earlier slices; keys and values are gathered, and each rank keeps all of
them. Ranks pad to the largest number of rows of any rank. Source: vLLM 0.32.0, vllm/v1/worker/gpu/pcp_manager.py.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
cimport cython

from simulator.collective.base cimport ALL_GATHER, DATA, CollectiveModel
from simulator.domain.batch cimport BatchShape, Chunk, rows_of
from simulator.latency.overheads.base cimport EngineOverhead
from simulator.latency.base cimport LatencyModel
from simulator.latency.batch_view cimport BatchView
from simulator.latency.gathering cimport Gathered

cdef enum:
    MAX_GATHERS = 8


cdef struct Gather:                 # see prompt_costs.Gather
    double count
    double token_bytes
    bint of_decodes
    double link_token_ns
    double latency_ns


cdef struct Load:                   # of one rank
    int64_t tokens
    int64_t pairs                   # as BatchShape.prefill_token_pairs
    int64_t context_tokens


# The tokens of a slice that begins `offset` tokens into a chunk of `tokens`.
cdef inline int64_t slice_tokens(int64_t tokens, int64_t offset, int64_t size) noexcept nogil:
    return max(min(size, tokens - offset), <int64_t>0)


@cython.final
cdef class PromptParallel(EngineOverhead):
    """Each rank computes its slices of prompts; the gathers of the ranks are added.

    The model prices the rank with most (query, key) pairs in attention, padded to the largest number of rows.

    Parameters
    ----------
    model : LatencyModel with `prices_context_parallel`; if it `prices_gathered`, its deployment has these ranks.
    degree : n.
    gathers : prompt_costs.Gather each; empty: nothing is added.
    collective : CollectiveModel with the n ranks as group "data"; None: times of the gathers.
    """

    cdef int32_t _degree
    cdef Gather _gathers[MAX_GATHERS]
    cdef int32_t _num_gathers
    cdef bint _is_out_of_memory
    cdef public list notes          # sentences for `warnings`

    def __init__(self, LatencyModel model, int32_t degree, gathers=(), CollectiveModel collective=None):
        EngineOverhead.__init__(self, model)
        if len(gathers) > MAX_GATHERS:
            raise ValueError(f"{len(gathers)} gathers, at most {MAX_GATHERS} expected")
        self._degree, self._num_gathers, self._collective, self.notes = degree, len(gathers), collective, []
        for i, each in enumerate(gathers):
            self._gathers[<int32_t>i] = Gather(each.count, each.token_bytes, each.of_decodes, each.link_token_ns,
                                               each.latency_ns)
        self.is_monotone = False        # one token more may move a slice from the busiest rank to another
        if collective is not None:      # it keeps state
            self.is_shareable = False

    @property
    def takes_padding(self):
        """False: padding of a rank's rows to captured sizes is not implemented."""
        return False

    @property
    def knows_kernels(self):
        """False: see takes_padding."""
        return False

    # ---- the batch of a rank

    cdef inline int64_t _slice_size(self, const Chunk* chunk) noexcept nogil:
        return (chunk.tokens + 2 * self._degree - 1) // (2 * self._degree)

    cdef Load _load(self, const BatchShape* shape, int32_t rank) noexcept nogil:
        cdef Load load = Load(0, 0, 0)
        cdef const Chunk* chunk
        cdef int64_t size, offset, tokens, context
        cdef int32_t i, side
        for i in range(shape.num_chunks):
            chunk = &shape.chunks[i]
            size = self._slice_size(chunk)
            for side in range(2):
                offset = size * (rank if side == 0 else 2 * self._degree - 1 - rank)
                tokens = slice_tokens(chunk.tokens, offset, size)
                if tokens > 0:
                    context = chunk.context_tokens + offset
                    load.tokens += tokens
                    load.pairs += tokens * (2 * context + tokens + 1)
                    load.context_tokens += context
        return load

    cdef int32_t _slices(self, const BatchShape* shape, int32_t rank, Chunk* slices) noexcept nogil:
        """Fill in the slices of a rank, and return their number."""
        cdef const Chunk* chunk
        cdef int64_t size, offset, tokens
        cdef int32_t i, side, count = 0
        for i in range(shape.num_chunks):
            chunk = &shape.chunks[i]
            size = self._slice_size(chunk)
            for side in range(2):
                offset = size * (rank if side == 0 else 2 * self._degree - 1 - rank)
                tokens = slice_tokens(chunk.tokens, offset, size)
                if tokens > 0:
                    slices[count] = Chunk(<int32_t>tokens, <int32_t>(chunk.context_tokens + offset),
                                          chunk.prompt_tokens)
                    count += 1
        return count

    cdef void _cut(self, BatchShape* cut, const BatchShape* shape, Chunk* slices) noexcept nogil:
        """Return the batch of the busiest rank; `slices` has room for two slices per chunk."""
        cdef Load load, busiest = self._load(shape, 0)
        cdef int64_t rows = busiest.tokens
        cdef int32_t rank, chosen = 0
        for rank in range(1, self._degree):
            load = self._load(shape, rank)
            rows = max(rows, load.tokens)
            if load.pairs > busiest.pairs:
                busiest, chosen = load, rank
        cut[0] = shape[0]
        cut.num_chunks, cut.chunks = self._slices(shape, chosen, slices), slices
        cut.prefill_tokens, cut.prefill_token_pairs = rows, busiest.pairs
        cut.prefill_context_tokens = busiest.context_tokens

    # ---- time

    cdef double _gather_ns(self, const BatchShape* cut) noexcept nogil:
        """Return the time of all gathers, from the batch of a rank; gathers of no rows take no time."""
        cdef double total = 0.0, tokens
        cdef const Gather* each
        cdef int32_t i
        for i in range(self._num_gathers):
            each = &self._gathers[i]
            tokens = <double>self._degree * <double>(rows_of(cut) if each.of_decodes else cut.prefill_tokens)
            if tokens == 0.0:
                continue
            if self._collective is None:
                total += each.count * (each.latency_ns + each.link_token_ns * tokens)
            else:
                total += each.count * self._collective.time_ns(DATA, ALL_GATHER, each.token_bytes * tokens)
        return total

    cdef double rank_ns(self, const BatchShape* shape, const Gathered* gathered, int32_t num_ranks) noexcept nogil:
        # Experts see the rows of all ranks: the decodes of each, and slices with their padding.
        cdef BatchShape cut = shape[0]
        cdef Gathered rows
        cdef Chunk* slices = NULL
        cdef double ns
        if shape.num_chunks > 0:
            slices = <Chunk*>malloc(2 * shape.num_chunks * sizeof(Chunk))
            if slices == NULL:
                self.failed = self._is_out_of_memory = True
                return 0.0
            self._cut(&cut, shape, slices)
        rows.prefill_tokens = gathered.prefill_tokens - shape.prefill_tokens + self._degree * cut.prefill_tokens
        rows.decode_tokens = self._degree * gathered.decode_tokens
        ns = self.model.rank_ns(&cut, &rows, self._degree * num_ranks)
        self.note_fault()
        ns += self._gather_ns(&cut)
        free(slices)
        return ns

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        cdef Gathered gathered
        gathered.prefill_tokens, gathered.decode_tokens = shape.prefill_tokens, shape.decode_tokens + shape.pad_tokens
        return self.rank_ns(shape, &gathered, 1)

    # ---- for people

    def rank_batch(self, prefill=()):
        """Return the slices of the busiest rank, as `prefill`, and the padded number of prompt rows."""
        cdef BatchView batch
        cdef BatchShape cut
        cdef Chunk* slices
        if not len(prefill):
            return [], 0
        batch = BatchView(prefill)
        slices = <Chunk*>malloc(2 * batch.shape.num_chunks * sizeof(Chunk))
        if slices == NULL:
            raise MemoryError()
        self._cut(&cut, &batch.shape, slices)
        found = [(slices[i].tokens, slices[i].context_tokens, slices[i].prompt_tokens) for i in range(cut.num_chunks)]
        rows = cut.prefill_tokens
        free(slices)
        return found, rows

    def breakdown(self, prefill=(), decode=(), int tokens_per_decode=1) -> dict:
        """Return the parts of the model for the busiest rank, and the parts added; arguments as in `predict`.

        prompt_padding: rows that this rank computes because another rank has more.
        """
        cdef BatchView batch
        slices, rows = self.rank_batch(prefill)
        copies = self._degree if self.model.prices_gathered else 1      # then a batch is of all ranks
        alike = slices * copies, list(decode) * copies, tokens_per_decode
        parts = self.model.breakdown(*alike) or {"model": self.model.predict(*alike)}
        batch = BatchView(slices, decode, tokens_per_decode)
        own_rows = batch.shape.prefill_tokens
        batch.shape.prefill_tokens = rows
        gather = self._gather_ns(&batch.shape) * 1e-9
        whole = self.predict(prefill, decode, tokens_per_decode)
        if rows > own_rows:
            parts = parts | {"prompt_padding": whole - gather - sum(parts.values())}
        return parts | ({"prompt_exchange": gather} if gather else {})

    def warnings(self) -> list:
        """Return the warnings of the model, and notes on the pricing of divided prompts."""
        return self.model.warnings() + self.notes

    def raise_if_failed(self):
        """Raise the error of the model or the collective model, or MemoryError, if there is one."""
        out_of_memory, self._is_out_of_memory = self._is_out_of_memory, False
        EngineOverhead.raise_if_failed(self)
        if self._collective is not None:
            self._collective.raise_if_failed()
        if out_of_memory:
            raise MemoryError()
