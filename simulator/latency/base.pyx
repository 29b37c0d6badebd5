"""Duration of an iteration: base class of every latency backend, and the host's share of the time."""
from libc.math cimport llround
from libc.stdlib cimport free, malloc

from simulator.domain.batch cimport Chunk, clear_shape
from simulator.latency.batch_view cimport BatchView
from simulator.latency.gathering cimport gather

cdef enum:
    MOST_STAGES = 1024          # pipeline stages: more than any model has layers


cdef class LatencyModel:
    """Predict the duration of an iteration from the sums of its batch.

    A backend is a subclass that overrides `batch_ns`. It is built as `Backend(parameters, deployment)`, with its own
    frozen `Parameters` and the `simulator.domain.deployment.Deployment` it runs on: None if the experiment has no
    [model] or no [hardware], which is refused if the class sets `needs_deployment` or `takes_collective`.
    `takes_collective`: the class takes `collective=None`, a CollectiveModel, and keeps it in `_collective`.
    `reads_files`: it has a static method `read` with these parameters, and takes the result, which several models may
    share, as `reading=None`.
    `takes_padding`: it prices `pad_tokens`. `knows_kernels`: it times kernels with their launches, so that CUDA graphs
    pad its batches unless the experiment says otherwise.
    `prices_any_model`: its parameters also price a draft model.
    `takes_experts`: it prices unevenly loaded experts, and the listed keys of [engine.experts]; it takes
    `experts=None`, a `simulator.experts.pricing.ExpertPricing`.
    """

    needs_deployment = False
    takes_collective = False
    reads_files = False
    takes_padding = False
    knows_kernels = False
    takes_experts = None
    prices_gathered = False             # `rank_ns` uses the tokens of all ranks
    knows_errors = False                # errors of its predictions, by operator: see uncertainty/README.md
    prices_any_model = False            # prices depend only on the model's facts: a draft model is priced, too
    delays_add_up = False               # output_token_us of its `host_terms` delays all later tokens, too
    prices_context_parallel = False     # context of decodes and chunks of prompts have prices: ranks can share them

    def __cinit__(self, *_, **__):
        self.num_stages, self.weight = 1, 1

    def __dealloc__(self):
        free(self._stage_shares)

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        return 1.0

    cdef int64_t step_ns(self, const BatchShape* shapes, int32_t num_busy, int32_t num_ranks) noexcept nogil:
        cdef Gathered gathered
        cdef double longest_ns = self._host_iteration_ns
        cdef int32_t i
        gather(&gathered, shapes, num_busy, num_ranks, self._pads_gathered)
        for i in range(num_busy):
            longest_ns = max(longest_ns, self.rank_ns(&shapes[i], &gathered, num_ranks) + self.host_ns(&shapes[i]))
        return self.rounded_ns(longest_ns)

    cdef double rank_ns(self, const BatchShape* shape, const Gathered* gathered, int32_t num_ranks) noexcept nogil:
        return self.batch_ns(shape)

    cdef void pad(self, BatchShape* shapes, int32_t num_busy, int32_t num_ranks) noexcept nogil:
        pass

    cdef void count(self, int32_t weight, bint is_ahead) noexcept nogil:
        self.weight, self.is_ahead = weight, is_ahead
        if self._collective is not None:
            self._collective.weight = weight

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        self.spread(self.batch_ns(shape), 0.0, 0.0, ns)

    cdef void take_host_of(self, LatencyModel model, double factor) noexcept nogil:
        self._host_iteration_ns = factor * model._host_iteration_ns
        self._host_sequence_ns = factor * model._host_sequence_ns
        self._resolution_ns = model._resolution_ns

    cdef int64_t least_ns(self) noexcept nogil:
        cdef BatchShape decode, prefill
        cdef Chunk chunk
        cdef int64_t ns
        if not self.is_monotone:
            return self.rounded_ns(self._host_iteration_ns)
        clear_shape(&decode)
        decode.num_sequences = decode.num_decodes = decode.num_samples = 1
        decode.decode_tokens = decode.context_tokens = 1
        decode.wastes_drafts = True
        chunk.tokens, chunk.context_tokens, chunk.prompt_tokens = 1, 0, 1
        clear_shape(&prefill)
        prefill.num_sequences = prefill.num_chunks = 1
        prefill.prefill_tokens, prefill.prefill_token_pairs, prefill.chunks = 1, 2, &chunk
        self.count(0, False)
        ns = min(self.iteration_ns(&decode), self.iteration_ns(&prefill))
        self.count(1, False)
        return ns

    cdef void stage_durations_ns(self, const BatchShape* shape, int64_t* durations_ns) noexcept nogil:
        cdef double total = self.host_ns(shape)
        cdef double[MOST_STAGES] ns         # of this call alone: threads share the model
        cdef int64_t least = max(self._resolution_ns, <int64_t>1), before = 0, end
        cdef int32_t num_stages = self.num_stages, i
        cdef bint is_whole = self._resolution_ns > 0
        self.stages_ns(shape, ns)
        for i in range(num_stages):
            total += ns[i]
            if is_whole or not total <= LONGEST_ITERATION_NS:
                end = max(self.rounded_ns(total), before + least)
            else:
                end = max(round_half_up(total), before + least)
            durations_ns[i] = end - before
            before = end

    def set_stages(self, layers):
        """Set the number of layers of each pipeline stage, in order; if never called, there is one stage."""
        cdef int32_t count = len(layers), i
        if count > MOST_STAGES:
            raise ValueError(f"pipeline stages: expected at most {<int>MOST_STAGES}, found {count}")
        free(self._stage_shares)
        self._stage_shares = <double*>malloc(count * sizeof(double))
        if self._stage_shares == NULL:
            raise MemoryError()
        for i in range(count):
            self._stage_shares[i] = layers[i] / <double>sum(layers)
        self.num_stages = count

    def set_host(self, double iteration_us, double resolution_us, double sequence_us=0.0):
        """Set the host time per iteration and sequence; iterations are truncated to a resolution (0: nearest ns)."""
        self._host_iteration_ns, self._host_sequence_ns = iteration_us * 1e3, sequence_us * 1e3
        self._resolution_ns = llround(resolution_us * 1e3)

    def pad_gathered(self):
        """Make ranks in lock step gather as many tokens for experts as in SGLang; see gathering.pxd."""
        self._pads_gathered = True

    def predict_step_ns(self, batches, int32_t num_ranks) -> int:
        """Return the duration of an iteration of ranks in lock step, in ns, as the engine uses it.

        batches : `prefill` and `decode` of each rank with tokens, as in `predict`; the other ranks execute dummy
            batches.
        """
        cdef BatchShape* shapes = <BatchShape*>malloc(max(len(batches), 1) * sizeof(BatchShape))
        cdef BatchView view
        cdef int64_t ns
        if shapes == NULL:
            raise MemoryError()
        views = [BatchView(*batch) for batch in batches]
        for i, view in enumerate(views):
            shapes[<int32_t>i] = view.shape
        ns = self.step_ns(shapes, len(batches), num_ranks)
        free(shapes)
        self.raise_if_failed()
        return ns

    def predict(self, prefill=(), decode=(), int tokens_per_decode=1) -> float:
        """Return the accelerator seconds of one iteration, unrounded.

        Parameters
        ----------
        prefill : sequence of (tokens, context)
            Prompt tokens computed now, tokens of the request already in the KV cache. A third number, the tokens of the
            prompt, is needed only if this chunk does not end it.
        decode : sequence of int
            For each decoding sequence, the tokens in the KV cache after this iteration.
        tokens_per_decode : int
            1, or 1 + drafts under speculative decoding.

        Returns
        -------
        float
            Seconds, without [latency.host] and rounding.
        """
        cdef BatchView batch = BatchView(prefill, decode, tokens_per_decode)
        cdef double ns = self.batch_ns(&batch.shape)
        self.raise_if_failed()
        return ns * 1e-9

    def predict_iteration_ns(self, prefill=(), decode=(), int tokens_per_decode=1) -> int:
        """Return the time that the engine uses, with host time, rounded to nanoseconds or `resolution_us`."""
        cdef BatchView batch = BatchView(prefill, decode, tokens_per_decode)
        cdef int64_t ns = self.iteration_ns(&batch.shape)
        self.raise_if_failed()
        return ns

    @property
    def least_iteration_ns(self) -> int:
        """Lower bound of the duration of any iteration."""
        return self.least_ns()

    def predict_stages_ns(self, prefill=(), decode=(), int tokens_per_decode=1) -> list:
        """Return the ns of each pipeline stage, its hand-over to the next stage included, as the engine uses them."""
        cdef BatchView batch = BatchView(prefill, decode, tokens_per_decode)
        cdef int64_t* durations_ns
        if self.num_stages == 1:
            return [self.predict_iteration_ns(prefill, decode, tokens_per_decode)]
        durations_ns = <int64_t*>malloc(self.num_stages * sizeof(int64_t))
        if durations_ns == NULL:
            raise MemoryError()
        self.stage_durations_ns(&batch.shape, durations_ns)
        predicted = [durations_ns[i] for i in range(self.num_stages)]
        free(durations_ns)
        self.raise_if_failed()
        return predicted

    def breakdown(self, prefill=(), decode=(), int tokens_per_decode=1) -> dict:
        """Return the seconds of each part, which sum to the result of `predict`; {}: there are no parts."""
        return {}

    def host_terms(self) -> dict:
        """Return the keys of [latency.host] that the backend knows, in microseconds."""
        return {}

    def provenance(self) -> dict:
        """Return the sources of the predictions counted so far, for the results."""
        found = self._collective.provenance() if self._collective is not None else {}
        return {"collective": found} if found else {}

    def warnings(self) -> list:
        """Return notes for a reader of the results, a sentence each."""
        return self._collective.warnings() if self._collective is not None else []

    def raise_if_failed(self):
        """Raise, once, the error of a failed prediction: the event loop itself cannot raise."""
        if self._collective is not None:
            self._collective.raise_if_failed()
