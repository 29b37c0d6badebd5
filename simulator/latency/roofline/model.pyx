"""`roofline`: each operator takes the longer of its arithmetic and its memory traffic; operators run in sequence.

By default laws of single operators price each by its size, see laws.py and curves.py: padded tiles, floors, work items,
derived from tables of operators by generation of accelerators. Against measured vLLM servers, from which they are not
derived, laws have a mean error of 12 % in time per output token (205 points: 6, 14 and 14 % for Llama-3.1-70B on H200,
Qwen3-32B on H100, gpt-oss-120b on H200), shares of peak 21 %. With `efficiency = "shares"`, or a share given, all sizes
reach one share of peak:

With P prompt tokens, D decode tokens, T = P + D, S sampled rows, n sequences, A (query, key) pairs of prompts,
X context tokens of prompts, C context tokens of decodes, and rates that are peak x efficiency, an iteration takes the
sum of

    dense               max(2 W (P / rate + D / rate), bytes of W / bandwidth): projections, dense MLPs, shared experts
    experts             as dense, for routed experts, with the bytes of the E (1 - (1 - k/E)^T) distinct ones needed
    head                max(2 W S / rate, bytes of W / bandwidth)
    prefill_attention   max(min(A x FLOPs a pair / rate + X x expansion of latents, A x FLOPs a pair of latents / rate),
                            (X + P) x KV bytes / bandwidth)
    decode_attention    max(C x FLOPs a pair / rate, C x KV bytes / bandwidth)
    state               n x recurrent state, read and written, / bandwidth + P x FLOPs a token / rate
    activations         T x bytes moved between matrix products / bandwidth
    sampler             S x bytes of logits / bandwidth
    collectives         T x bytes sent / link bandwidth, or from [latency.collective]
    latencies           a constant: starts of kernels and collectives

all on one accelerator; costs.py has each coefficient. [engine.experts] has the busiest rank's share of experts, with
the weights of its needed experts, and adds dispatch and combine: experts.py; with two-batch overlap the halves of a
batch alternate, see simulator/experts/README.md, with all layers counted as equal. With pipeline stages, head and
sampler belong to the last stage, a hand-over follows each other stage, and the remaining time is divided by layers. A
maximum is taken where the hardware overlaps work, within an operator. Prompts and decodes of a batch share one pass
over the weights but not attention. Unlike in a roofline of whole phases, max(sum of FLOPs / peak, sum of bytes /
bandwidth), work hides only behind work that it can overlap with; and shares of peak of single kernels are published,
whereas those of a whole model must be fitted.

New tokens behind a cached prefix attend to it by arithmetic and traffic: a single one takes as long as a decode with
equal context. By law the context is read as for decodes, and the tile that small prompts fail to fill is
computed against their own keys alone: it was fitted to prompts without context. By the laws of kind_laws.py the last
token of a chunk is priced as a decode, and the chunk's other tokens add to it.

Windows: only sums over the batch are known, so layers that see w tokens are charged min(C, w x decodes), min(X, w x
chunks) and min(A, w P): exact while all contexts are shorter, or all longer, than the window, else an overestimate. A
chunked window (Llama-4) counts as a sliding one. Speculation: each query of a sequence is charged the mean context. The
head runs even if no sequence samples, as vLLM computes the logits of unfinished prompts too.
"""
cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

import msgspec

from simulator.domain.batch cimport BatchShape, repeat_shape, rows_of
from simulator.latency.base cimport LatencyModel
from simulator.latency.batch_view cimport BatchView
from simulator.latency.few_tokens cimport is_few_behind_many
from simulator.latency.gathering cimport Gathered
from simulator.collective.base cimport CollectiveModel
from simulator.collective.per_iteration cimport IterationCollectives

from simulator.collective.exchanges import exchanges
from simulator.experts.pricing import exchange_notes
from simulator.latency.roofline.costs import EXPERT_GROUPS, rates, roofline_costs
from simulator.latency.roofline.curves import with_laws
from simulator.latency.roofline.errors import law_tables, operator_errors, varied_costs
from simulator.latency.roofline.experts import expert_costs
from simulator.latency.roofline.laws import few_tokens_notes, law_notes
from simulator.latency.roofline.parameters import RooflineParameters, efficiency_by, reduce_law

cdef struct Attention:          # of layers with equal window; see AttentionCosts
    double window
    double pair_ns
    double expand_ns
    double latent_pair_ns
    double prefill_kv_ns
    double prefill_context_ns
    double context_flops_ns
    double context_kv_ns
    double tile_tokens
    double prefill_query_ns
    double prefill_floor_ns
    double sequence_ns
    double decode_floor_ns
    bint joins_decodes


cdef struct Costs:              # see RooflineCosts
    double constant_ns
    double collective_ns
    double activation_token_ns
    double collective_token_ns
    double gather_token_ns
    double handover_ns
    double handover_token_ns
    double dense_prefill_ns
    double dense_decode_ns
    double dense_weights_ns
    double expert_prefill_ns
    double expert_decode_ns
    double head_sample_ns
    double head_weights_ns
    double sampler_sample_ns
    double state_sequence_ns
    double state_token_ns
    Attention full_attention
    Attention window_attention


cdef enum:
    MOST_OTHERS = 30            # MOST_OTHER_PASSES
    RAMP_TOKENS = 16            # see kind_laws.py


cdef struct Overlap:            # of two batches; see simulator/experts/README.md
    bint is_enabled
    int64_t decode_tokens       # minimum, on the rank with fewest
    int64_t prefill_tokens
    double slowdown             # of computation
    double layers


# One instruction each; libm's fmin and fmax, with their rules for NaN, are calls.
cdef inline double larger(double a, double b) noexcept nogil:
    return a if a > b else b

cdef inline double smaller(double a, double b) noexcept nogil:
    return a if a < b else b


cdef inline double joined_attention_ns(const Attention* costs, const BatchShape* shape) noexcept nogil:
    """Return the time of attention over prompt chunks, by laws of other kinds: that of decodes, and all beyond.

    The last token of each chunk is a decode. One-token chunks take as long as decodes, and time never falls with more
    tokens, new or cached. See kind_laws.py.
    """
    cdef double others = <double>(shape.prefill_tokens - shape.num_chunks)
    cdef double whole = <double>(shape.prefill_context_tokens + shape.prefill_tokens)
    cdef double seen = smaller(whole, costs.window * shape.num_chunks)
    cdef double ramp = smaller(others / RAMP_TOKENS, 1.0)
    cdef double pairs = (smaller(0.5 * <double>shape.prefill_token_pairs - whole, costs.window * others)
                         + ramp * costs.tile_tokens * seen)
    cdef double beyond_ns = costs.pair_ns * pairs
    if costs.expand_ns > 0.0:
        beyond_ns = smaller(beyond_ns + costs.expand_ns * <double>shape.prefill_context_tokens,
                            costs.latent_pair_ns * pairs)
    return (larger(costs.context_flops_ns * seen + beyond_ns, costs.context_kv_ns * seen)
            + costs.sequence_ns * shape.num_chunks + costs.prefill_query_ns * others
            + costs.decode_floor_ns + ramp * costs.prefill_floor_ns)


cdef inline double prefill_attention_ns(const Attention* costs, const BatchShape* shape) noexcept nogil:
    """Return the time of attention over prompt chunks: arithmetic or KV traffic, whichever is longer."""
    if costs.joins_decodes:
        return joined_attention_ns(costs, shape)
    cdef double tokens = <double>shape.prefill_tokens
    cdef double pairs = smaller(0.5 * <double>shape.prefill_token_pairs, costs.window * tokens)
    cdef double context = smaller(<double>shape.prefill_context_tokens, costs.window * shape.num_chunks)
    cdef double seen = smaller(0.5 * tokens, costs.window * shape.num_chunks)
    cdef double arithmetic_ns = costs.pair_ns * (pairs + costs.tile_tokens * seen) + costs.expand_ns * context
    if costs.expand_ns > 0.0:
        arithmetic_ns = smaller(arithmetic_ns, costs.latent_pair_ns * pairs)
    return costs.prefill_floor_ns + larger(
        arithmetic_ns, costs.prefill_context_ns * context + (costs.prefill_kv_ns + costs.prefill_query_ns) * tokens)


cdef inline double decode_attention_ns(const Attention* costs, const BatchShape* shape) noexcept nogil:
    """Return the time of attention over decoding sequences."""
    cdef double context = smaller(<double>shape.context_tokens, costs.window * shape.num_decodes)
    cdef double queries = 1.0
    if shape.decode_tokens != shape.num_decodes:        # speculative decoding: several queries a sequence
        queries = <double>shape.decode_tokens / shape.num_decodes
    return (larger(costs.context_flops_ns * queries, costs.context_kv_ns) * context
            + costs.sequence_ns * shape.num_decodes + (costs.decode_floor_ns if shape.num_decodes > 0 else 0.0))


# Beyond the table, time is extrapolated from its second half, where it is proportional to rows, except floors.
cdef inline double by_rows(const double[::1] ns, int64_t rows) noexcept nogil:
    cdef int64_t last = ns.shape[0] - 1
    if rows <= last:
        return ns[rows]
    return ns[last] + (ns[last] - ns[last // 2]) * (<double>(rows - last) / <double>(last - last // 2))


@cython.final
cdef class Roofline(LatencyModel):
    """Duration from FLOPs and bytes: any model on any accelerator, nothing fitted."""

    Parameters = RooflineParameters
    takes_padding = True
    takes_collective = knows_errors = True
    takes_experts = ("all2all_backend", "dbo")
    prices_gathered = prices_context_parallel = prices_any_model = True

    cdef readonly object costs                  # RooflineCosts, for reading
    cdef Costs _costs                           # `costs` as a C struct
    cdef bint _has_windows                      # some layers have a window, or there are other passes
    cdef Attention _others[MOST_OTHERS]         # see other_attention of RooflineCosts
    cdef int32_t _num_others
    cdef readonly str efficiency                # "shares" of peak, or the name of the generation of the laws
    cdef bint _has_laws                         # then these tables by rows are set, see curves.py:
    cdef const double[::1] _dense_by_rows, _experts_by_rows, _head_by_rows, _even_by_rows
    cdef double* _expert_weights_ns             # by number of tokens
    cdef Py_ssize_t _last_expert_entry          # last entry: beyond this many tokens no more experts are needed
    cdef IterationCollectives _collectives      # None: the costs hold them
    cdef object _deployment
    cdef object _experts                        # ExpertPricing; None: loaded evenly, and the costs hold their exchange
    cdef bint _has_experts                      # _experts and the following fields are set
    cdef const double[::1] _imbalance, _dispatch_ns, _combine_ns        # see ExpertCosts
    cdef object _even_weights_ns                # of evenly loaded experts, by tokens
    cdef int64_t _data_ranks
    cdef Overlap _overlap
    cdef bint _had_few                          # few tokens behind many occurred; never reset, so threads may write it

    def __init__(self, parameters, deployment, CollectiveModel collective=None, experts=None, factors=None):
        """Compute the coefficients.

        experts : ExpertPricing; None: evenly loaded.
        factors : on the time of operators, by the names in `errors`; None: no factors.
        """
        self._deployment = deployment
        if deployment is None:
            raise ValueError("roofline needs [model] and [hardware]")
        rate = rates(parameters, deployment)
        self.efficiency, generation = efficiency_by(parameters, deployment.accelerator)
        reduce = reduce_law(parameters, deployment, generation)
        self.costs = roofline_costs(deployment, rate, collective is None, experts is None, reduce)
        if collective is not None:
            needed = [each for each in exchanges(deployment) if experts is None or each.group not in EXPERT_GROUPS]
            self._collective = collective
            self._collectives = IterationCollectives(collective, needed)
        self.is_shareable = collective is None          # collective models keep state
        # Sums of larger and smaller of products with counts; the more tokens, the more evenly experts are loaded.
        self.is_monotone = collective is None and experts is None
        if experts is not None:
            self._take_experts(experts, expert_costs(deployment, rate, experts, collective))
        if generation is not None:
            self.costs = with_laws(self.costs, deployment, rate, generation, experts)
        if factors is not None:
            self.costs = varied_costs(self.costs, factors)
        if generation is not None:
            self._take_laws()
        self._copy_costs()

    cdef int _take_experts(self, experts, costs) except -1:
        dbo = experts.dbo
        self._experts, self._has_experts = experts, True
        self._imbalance, self._dispatch_ns, self._combine_ns = costs.imbalance, costs.dispatch_ns, costs.combine_ns
        self._even_weights_ns = self.costs.expert_weights_ns
        self.costs = msgspec.structs.replace(self.costs, expert_weights_ns=costs.weights_ns)
        self._data_ranks = self._deployment.parallelism.token_ranks
        self._overlap = Overlap(
            dbo.enabled, dbo.decode_token_threshold, dbo.prefill_token_threshold,
            dbo.num_sms / (dbo.num_sms - dbo.comm_sms), self._deployment.model.num_layers)
        return 0

    cdef int _take_laws(self) except -1:
        costs, self._has_laws = self.costs, True
        self._dense_by_rows, self._head_by_rows = costs.dense_ns, costs.head_ns
        self._experts_by_rows, self._even_by_rows = costs.experts_ns, costs.even_experts_ns
        return 0

    def __dealloc__(self):
        free(self._expert_weights_ns)

    cdef int _copy_costs(self) except -1:
        table = self.costs.expert_weights_ns
        values = msgspec.structs.asdict(self.costs)
        others = values.pop("other_attention")
        self._num_others = len(others)
        for i in range(self._num_others):
            self._others[i] = msgspec.structs.asdict(others[i])
        for name in ("expert_weights_ns", "dense_ns", "experts_ns", "even_experts_ns", "head_ns"):
            values.pop(name)
        for name in ("full_attention", "window_attention"):
            values[name] = msgspec.structs.asdict(values[name])
        self._costs = values
        self._has_windows = self._num_others > 0 or any(
            cost for name, cost in values["window_attention"].items() if name != "window")
        free(self._expert_weights_ns)
        self._expert_weights_ns = <double*>malloc(len(table) * sizeof(double))
        if self._expert_weights_ns == NULL:
            raise MemoryError()
        self._last_expert_entry = len(table) - 1
        for i in range(self._last_expert_entry + 1):
            self._expert_weights_ns[i] = table[i]
        return 0

    cdef double _dense_ns(self, const BatchShape* shape) noexcept nogil:
        if self._has_laws:
            return by_rows(self._dense_by_rows, rows_of(shape))
        return self._dense_by_shares_ns(shape)

    cdef double _dense_by_shares_ns(self, const BatchShape* shape) noexcept nogil:
        cdef double arithmetic_ns = (self._costs.dense_prefill_ns * <double>shape.prefill_tokens
                                     + self._costs.dense_decode_ns * <double>(shape.decode_tokens + shape.pad_tokens))
        return larger(arithmetic_ns, self._costs.dense_weights_ns)

    cdef double _experts_ns(self, const BatchShape* shape) noexcept nogil:
        if self._has_laws:
            return by_rows(self._experts_by_rows, rows_of(shape))
        return self._experts_by_shares_ns(shape)

    cdef double _experts_by_shares_ns(self, const BatchShape* shape) noexcept nogil:
        cdef Py_ssize_t tokens = rows_of(shape)
        cdef double arithmetic_ns = (self._costs.expert_prefill_ns * <double>shape.prefill_tokens
                                     + self._costs.expert_decode_ns * <double>(shape.decode_tokens + shape.pad_tokens))
        if tokens > self._last_expert_entry:
            tokens = self._last_expert_entry
        if self._has_experts:
            arithmetic_ns *= self._imbalance[tokens]
        return larger(arithmetic_ns, self._expert_weights_ns[tokens])

    cdef double _exchange_ns(self, int64_t tokens) noexcept nogil:
        """Return the time of dispatch and combine for tokens of all ranks; beyond the tables it is proportional."""
        cdef int64_t last = self._dispatch_ns.shape[0] - 1
        if tokens > last:
            return (self._dispatch_ns[last] + self._combine_ns[last]) * (<double>tokens / last)
        return self._dispatch_ns[tokens] + self._combine_ns[tokens]

    cdef inline bint _is_split(self, const BatchShape* shape) noexcept nogil:
        cdef int64_t fewest = (shape.prefill_tokens + shape.decode_tokens) // self._data_ranks
        return self._overlap.is_enabled and fewest >= (
            self._overlap.prefill_tokens if shape.num_chunks > 0 else self._overlap.decode_tokens)

    cdef double _halves_ns(self, const BatchShape* shape) noexcept nogil:
        """Return the time of all layers if halves of the batch alternate."""
        cdef BatchShape half = shape[0]
        cdef double compute_ns, exchange_ns
        half.prefill_tokens, half.decode_tokens = (shape.prefill_tokens + 1) // 2, (shape.decode_tokens + 1) // 2
        half.pad_tokens = (shape.pad_tokens + 1) // 2
        compute_ns = self._layers_ns(&half, 0.5 * (
            self._prefill_attention_ns(shape) + self._decode_attention_ns(shape) + self._state_ns(shape)))
        exchange_ns = self._exchange_ns(rows_of(&half))
        return (2.0 * larger(compute_ns * self._overlap.slowdown, exchange_ns)
                + (compute_ns + exchange_ns) / self._overlap.layers)

    cdef double _layers_ns(self, const BatchShape* shape, double attention_ns) noexcept nogil:
        """Return the time of all layers, without the exchange of tokens; attention and states are given."""
        cdef double tokens = <double>rows_of(shape)
        return (self._costs.constant_ns + self._costs.activation_token_ns * tokens + self._collectives_ns(shape)
                + self._dense_ns(shape) + self._experts_ns(shape) + attention_ns)

    cdef double _uneven_ns(self, const BatchShape* shape) noexcept nogil:
        """Return batch_ns for experts that are not loaded evenly."""
        cdef double ns = self._head_ns(shape) + self._costs.sampler_sample_ns * shape.num_samples
        if self._is_split(shape):
            return ns + self._halves_ns(shape)
        return ns + self._exchange_ns(rows_of(shape)) + self._layers_ns(
            shape, self._prefill_attention_ns(shape) + self._decode_attention_ns(shape) + self._state_ns(shape))
    cdef double rank_ns(self, const BatchShape* shape, const Gathered* gathered, int32_t num_ranks) noexcept nogil:
        # Coefficients are for a batch that is spread over the ranks, so each rank is taken to have this batch. Experts
        # and their gathers are for the batches of all ranks.
        cdef BatchShape alike, together = shape[0]
        cdef double own_tokens = <double>num_ranks * <double>rows_of(shape), ns, replaced_ns
        cdef int32_t weight = self.weight
        repeat_shape(&alike, shape, num_ranks)
        together.prefill_tokens, together.decode_tokens = gathered.prefill_tokens, gathered.decode_tokens
        together.pad_tokens = 0                         # counted in the gathered tokens
        if self._has_experts and self._is_split(&alike):
            return self.batch_ns(&alike)                # as if all ranks had this batch
        if self._collective is not None:
            self._collective.weight = 0                 # its collectives are replaced
        ns, replaced_ns = self.batch_ns(&alike), self._collectives_ns(&alike)
        if self._collective is not None:
            self._collective.weight = weight
        if self._has_experts:
            ns += self._exchange_ns(rows_of(&together)) - self._exchange_ns(rows_of(&alike))
        return (ns - self._experts_ns(&alike) - replaced_ns + self._experts_ns(&together)
                + self._rank_collectives_ns(own_tokens, rows_of(&together)))

    cdef double _rank_collectives_ns(self, double own_tokens, int64_t gathered) noexcept nogil:
        if self._collectives is None:
            return ((self._costs.collective_token_ns - self._costs.gather_token_ns) * own_tokens
                    + self._costs.gather_token_ns * <double>gathered)
        return self._collectives.rank_ns(<int64_t>own_tokens, gathered)

    cdef double _head_ns(self, const BatchShape* shape) noexcept nogil:
        if self._has_laws:
            return by_rows(self._head_by_rows, shape.num_samples)
        return larger(self._costs.head_sample_ns * shape.num_samples, self._costs.head_weights_ns)

    cdef double _prefill_attention_ns(self, const BatchShape* shape) noexcept nogil:
        if shape.num_chunks == 0:
            return 0.0
        if is_few_behind_many(shape):
            self._had_few = True
        cdef double ns = prefill_attention_ns(&self._costs.full_attention, shape)
        cdef int32_t i
        if self._has_windows:
            ns += prefill_attention_ns(&self._costs.window_attention, shape)
            for i in range(self._num_others):
                ns += prefill_attention_ns(&self._others[i], shape)
        return ns

    cdef double _decode_attention_ns(self, const BatchShape* shape) noexcept nogil:
        cdef double ns = decode_attention_ns(&self._costs.full_attention, shape)
        cdef int32_t i
        if self._has_windows:
            ns += decode_attention_ns(&self._costs.window_attention, shape)
            for i in range(self._num_others):
                ns += decode_attention_ns(&self._others[i], shape)
        return ns

    cdef double _state_ns(self, const BatchShape* shape) noexcept nogil:
        return (self._costs.state_sequence_ns * shape.num_sequences
                + self._costs.state_token_ns * <double>shape.prefill_tokens)

    cdef inline double _collectives_ns(self, const BatchShape* shape) noexcept nogil:
        cdef int64_t tokens = rows_of(shape)
        if self._collectives is None:
            return self._costs.collective_token_ns * <double>tokens
        return self._collectives.ns(tokens)

    cdef double _handover_ns(self, const BatchShape* shape) noexcept nogil:
        cdef int64_t tokens = rows_of(shape)
        if self._collectives is None:
            return self._costs.handover_ns + self._costs.handover_token_ns * <double>tokens
        return self._collectives.handover_ns(tokens)

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        cdef double tokens = <double>rows_of(shape)
        if self._has_experts:
            return self._uneven_ns(shape)
        return (self._costs.constant_ns + self._costs.activation_token_ns * tokens + self._collectives_ns(shape)
                + self._costs.sampler_sample_ns * shape.num_samples
                + self._dense_ns(shape) + self._experts_ns(shape) + self._head_ns(shape)
                + self._prefill_attention_ns(shape) + self._decode_attention_ns(shape) + self._state_ns(shape))

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        cdef double handover_ns = self._handover_ns(shape)
        cdef double last_ns = self._head_ns(shape) + self._costs.sampler_sample_ns * shape.num_samples
        cdef double layers_ns = self.batch_ns(shape) - last_ns - (self.num_stages - 1) * handover_ns
        self.spread(layers_ns, handover_ns, last_ns, ns)

    def breakdown(self, prefill=(), decode=(), int tokens_per_decode=1) -> dict:
        """Return the seconds of each operator, which sum to the result of `predict`; arguments as in `predict`."""
        cdef BatchView batch = BatchView(prefill, decode, tokens_per_decode)
        cdef const BatchShape* shape = &batch.shape
        cdef double tokens = <double>rows_of(shape)
        terms_ns = {
            "dense": self._dense_ns(shape),
            "experts": self._experts_ns(shape),
            "head": self._head_ns(shape),
            "prefill_attention": self._prefill_attention_ns(shape),
            "decode_attention": self._decode_attention_ns(shape),
            "state": self._state_ns(shape),
            "activations": self._costs.activation_token_ns * tokens,
            "sampler": self._costs.sampler_sample_ns * shape.num_samples,
            "collectives": self._collectives_ns(shape),
            "latencies": self._costs.constant_ns,
        }
        if self._has_experts:
            terms_ns |= self._expert_terms_ns(batch, terms_ns)
        self.raise_if_failed()
        return {name: ns * 1e-9 for name, ns in terms_ns.items()}

    def _expert_terms_ns(self, BatchView batch, terms_ns):
        """Return the time of experts at the mean load of the ranks, and the terms added to it.

        imbalance: of the busiest rank; below 0 if it needs fewer experts, so that reading them takes less time.
        overlap: time that two-batch overlap saves (below 0) or costs.
        """
        cdef const BatchShape* shape = &batch.shape
        cdef int64_t tokens = shape.prefill_tokens + shape.decode_tokens
        cdef int64_t last = self._dispatch_ns.shape[0] - 1
        even_ns = self._even_experts_ns(shape)
        beyond = max(1.0, <double>tokens / last)
        found = {"experts": even_ns, "imbalance": terms_ns["experts"] - even_ns,
                 "dispatch": self._dispatch_ns[min(tokens, last)] * beyond,
                 "combine": self._combine_ns[min(tokens, last)] * beyond}
        if self._is_split(shape):
            found["overlap"] = self.batch_ns(shape) - sum((terms_ns | found).values())
        return found

    cdef double _even_experts_ns(self, const BatchShape* shape) except -1.0:
        cdef int64_t tokens = shape.prefill_tokens + shape.decode_tokens
        if self._has_laws:
            return by_rows(self._even_by_rows, rows_of(shape))
        return max(self._costs.expert_prefill_ns * shape.prefill_tokens
                   + self._costs.expert_decode_ns * shape.decode_tokens,
                   self._even_weights_ns[min(tokens, len(self._even_weights_ns) - 1)])

    @staticmethod
    def errors(parameters, deployment, collective=None) -> tuple:
        """Return OperatorError by operator, and the file of laws in use."""
        is_by_law = efficiency_by(parameters, deployment.accelerator)[1] is not None
        return operator_errors(parameters, deployment, collective is not None), law_tables() if is_by_law else {}

    @staticmethod
    def varied(given, errors, factors) -> dict:
        """Return the arguments `given` with factors on the times of operators."""
        return given | {"factors": {name: inside for name, (inside, _) in factors.items()}}

    def provenance(self) -> dict:
        """Return the source of the laws, of the collective model and of the expert loads."""
        found = {"efficiency": self.efficiency} | LatencyModel.provenance(self)
        if self._has_laws:
            found["tables"] = law_tables()
        return found if self._experts is None else found | {"experts": self._experts.provenance()}

    def warnings(self) -> list:
        """Return notes on missing formats, operators without laws, experts and collectives."""
        notes = [f"roofline: {note}" for note in self._deployment.format_notes()]
        notes += [f"roofline: {note}" for note in law_notes(self._deployment, self.efficiency)]
        if self._had_few:
            notes += [f"roofline: {note}" for note in few_tokens_notes(self._deployment)]
        if self._experts is not None:
            notes += self._experts.warnings(self._deployment, "roofline")
            if self._collective is None:
                notes += [f"roofline: {note}" for note in exchange_notes(
                    self._deployment, self._experts.all2all_backend)]
        return notes + LatencyModel.warnings(self)
