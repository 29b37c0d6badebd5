"""Decode context parallelism: several ranks store the tokens of a sequence, and each attends to its share.

With n ranks and interleave I, token i of a sequence is on rank floor(i / I) mod n. Rank 0 has the largest share:
floor(floor(L / I) / n) I + min(rest, I) of L tokens. Source: vLLM 0.32.0, vllm/v1/attention/backends/utils.py
(get_dcp_local_seq_lens); collectives: vllm/v1/attention/ops/common.py, dcp_alltoall.py.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.collective.base cimport TENSOR, CollectiveKind, CollectiveModel, Questions
from simulator.domain.batch cimport BatchShape, rows_of
from simulator.latency.overheads.base cimport EngineOverhead
from simulator.latency.base cimport LatencyModel
from simulator.latency.gathering cimport Gathered

from simulator.collective.groups import KINDS

cdef enum:
    MAX_EXCHANGES = 4


cdef struct Shared:                 # one collective of each layer of full attention; see context_costs.Exchange
    CollectiveKind kind
    double layers
    double token_bytes
    bint of_prompts
    bint of_context
    double link_token_ns            # instead of a collective model: latency_ns + this, for each token
    double latency_ns


@cython.final
cdef class ContextParallel(EngineOverhead):
    """Each rank attends to its share of the context; exchanges are added.

    The model prices the context of the rank with the largest share.

    Only sums over a batch are known. For one decoding sequence the share is exact. For m sequences with C tokens it is
    C / n + m I (n - 1) / (2 n), the mean share of rank 0 if contexts end anywhere in a round of I n tokens: at most
    m I (n - 1) / (2 n) off. Prompts attend as without context parallelism; prompts with only one token left to
    compute, the others cached, count as decodes if the batch has no other prompts and verifies no drafts.

    Parameters
    ----------
    model : LatencyModel with `prices_context_parallel`.
    degree, interleave : n and I.
    exchanges : context_costs.Exchange each; empty: nothing is added.
    stage_layers : number of full-attention layers of each pipeline stage.
    copies : number of data-parallel ranks over which a batch is spread.
    collective : CollectiveModel with the n ranks as tensor-parallel group; None: times of the exchanges.
    """

    cdef int64_t _degree, _interleave, _copies
    cdef Shared _exchanges[MAX_EXCHANGES]
    cdef int32_t _num_exchanges
    cdef public list notes          # sentences for `warnings`
    cdef int64_t _last_tokens[3]    # of the last exchange, with a collective model
    cdef double _last_ns
    cdef Questions _questions       # calls of the collective model behind _last_ns

    def __init__(self, LatencyModel model, int64_t degree, int64_t interleave=1, exchanges=(), stage_layers=(1,),
                 int64_t copies=1, CollectiveModel collective=None):
        cdef int32_t i
        EngineOverhead.__init__(self, model)
        if len(exchanges) > MAX_EXCHANGES:
            raise ValueError(f"{len(exchanges)} exchanges, at most {MAX_EXCHANGES} expected")
        self._degree, self._interleave, self._copies = degree, interleave, copies
        self._num_exchanges, self._collective, self.notes = len(exchanges), collective, []
        for i in range(self._num_exchanges):
            each = exchanges[i]
            self._exchanges[i] = Shared(KINDS.index(each.kind), each.layers, each.token_bytes, each.of_prompts,
                                        each.of_context, each.link_token_ns, each.latency_ns)
        if model.num_stages > 1:
            self.set_stages(stage_layers)       # for the exchange alone: `model` has its own layers
        self._last_tokens[0] = -1
        if collective is not None:              # it keeps state, and may not be monotone in the bytes
            self.is_shareable = self.is_monotone = False
            self._questions = Questions(collective)

    @property
    def takes_padding(self):
        """Whether the model prices padding."""
        return self.model.takes_padding

    @property
    def knows_kernels(self):
        """Whether the model times kernels as they are launched."""
        return self.model.knows_kernels

    def share(self, int64_t context_tokens, int32_t num_sequences=1) -> int:
        """Return the context of decodes on the rank with the largest share."""
        return self._share(context_tokens, num_sequences)

    cdef inline int64_t _share(self, int64_t tokens, int32_t sequences) noexcept nogil:
        cdef int64_t whole, most
        if sequences <= 1:
            whole = tokens // (self._interleave * self._degree) * self._interleave
            return whole + min(tokens - whole * self._degree, self._interleave)
        most = 2 * tokens + sequences * self._interleave * (self._degree - 1)
        most = (most + 2 * self._degree - 1) // (2 * self._degree)
        return min(tokens, max(most, <int64_t>sequences))

    cdef inline void _read(self, BatchShape* read, const BatchShape* shape) noexcept nogil:
        """Count prompts of one new token each as decodes."""
        read[0] = shape[0]
        if shape.prefill_tokens == shape.num_chunks and shape.decode_tokens == shape.num_decodes:
            read.num_decodes += shape.num_chunks
            read.decode_tokens += shape.prefill_tokens
            read.context_tokens += shape.prefill_context_tokens + shape.prefill_tokens
            read.num_chunks, read.chunks = 0, NULL
            read.prefill_tokens = read.prefill_context_tokens = read.prefill_token_pairs = 0

    cdef inline void _cut(self, BatchShape* cut, const BatchShape* shape) noexcept nogil:
        cut[0] = shape[0]
        cut.context_tokens = self._share(shape.context_tokens, shape.num_decodes)
        cut.below_longest_tokens = shape.below_longest_tokens // self._degree
        cut.above_shortest_tokens = shape.above_shortest_tokens // self._degree

    cdef double _exchange_ns(self, const BatchShape* shape, int64_t copies) noexcept nogil:
        """Return the time of all exchanges of a batch that is spread over `copies` ranks."""
        cdef int64_t decodes, rows, context
        decodes = (shape.decode_tokens + shape.pad_tokens + copies - 1) // copies if shape.num_decodes > 0 else 0
        rows = (rows_of(shape) + copies - 1) // copies
        context = (shape.prefill_context_tokens + copies - 1) // copies
        if self._collective is None:
            return self._total_ns(decodes, rows, context)
        if self._last_tokens[0] != decodes or self._last_tokens[1] != rows or self._last_tokens[2] != context:
            self._price(decodes, rows, context)
        self._questions.ask_again()
        return self._last_ns

    cdef void _price(self, int64_t decodes, int64_t rows, int64_t context) noexcept nogil:
        self._questions.begin()
        self._last_ns = self._total_ns(decodes, rows, context)
        self._questions.end()
        self._last_tokens[0] = -1 if self._collective.failed else decodes
        self._last_tokens[1], self._last_tokens[2] = rows, context

    cdef double _total_ns(self, int64_t decodes, int64_t rows, int64_t context) noexcept nogil:
        cdef double total = 0.0, tokens
        cdef const Shared* each
        cdef int32_t i
        for i in range(self._num_exchanges):
            each = &self._exchanges[i]
            tokens = <double>(context if each.of_context else rows if each.of_prompts else decodes)
            if tokens == 0.0:
                continue
            if self._collective is None:
                total += each.layers * (each.latency_ns + each.link_token_ns * tokens)
            else:
                total += each.layers * self._collective.time_ns(TENSOR, each.kind, each.token_bytes * tokens)
        return total

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        cdef BatchShape read, cut
        cdef double ns
        self._read(&read, shape)
        self._cut(&cut, &read)
        ns = self.model.batch_ns(&cut)
        self.note_fault()
        return ns + self._exchange_ns(&read, self._copies)

    cdef double rank_ns(self, const BatchShape* shape, const Gathered* gathered, int32_t num_ranks) noexcept nogil:
        cdef BatchShape read, cut
        cdef double ns
        self._read(&read, shape)
        self._cut(&cut, &read)
        ns = self.model.rank_ns(&cut, gathered, num_ranks)
        self.note_fault()
        return ns + self._exchange_ns(&read, 1)

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        cdef BatchShape read, cut
        cdef double exchange_ns
        cdef int32_t i
        self._read(&read, shape)
        self._cut(&cut, &read)
        exchange_ns = self._exchange_ns(&read, self._copies)
        self.model.stages_ns(&cut, ns)
        self.note_fault()
        for i in range(self.num_stages):
            ns[i] += exchange_ns * self._stage_shares[i]

    def breakdown(self, prefill=(), decode=(), int tokens_per_decode=1) -> dict:
        """Return the parts of the model for the context of a rank, and the exchange; arguments as in `predict`."""
        cut, chunks = list(decode), list(prefill)
        if chunks and tokens_per_decode == 1 and all(chunk[0] == 1 for chunk in chunks):
            cut, chunks = cut + [chunk[1] + 1 for chunk in chunks], []
        count = len(cut)
        if count:
            context = self._share(sum(cut), count)
            cut = [context // count + (i < context % count) for i in range(count)]
        parts = self.model.breakdown(chunks, cut, tokens_per_decode)
        own = self.model.predict(chunks, cut, tokens_per_decode)
        exchange = self.predict(prefill, decode, tokens_per_decode) - own
        return (parts or {"model": own}) | ({"context_exchange": exchange} if exchange else {})

    def warnings(self) -> list:
        """Return the warnings of the model, and notes on the pricing of context parallelism."""
        return self.model.warnings() + self.notes

    def raise_if_failed(self):
        """Raise the error of the model or of the collective model, if there is one."""
        EngineOverhead.raise_if_failed(self)
        if self._collective is not None:
            self._collective.raise_if_failed()
