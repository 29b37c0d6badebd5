"""Speculative decoding: the drafter works after the target model, in the same iteration."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.batch cimport BatchShape
from simulator.latency.overheads.base cimport EngineOverhead
from simulator.latency.base cimport LatencyModel


@cython.final
cdef class Drafter(EngineOverhead):
    """An iteration lasts until the drafts for the next iteration are computed.

    A draft model first computes all tokens of the batch, so that its own KV is complete, and then one token of each
    sequence per further draft, one after the other. A draft head of the target reads the target's hidden state of the
    previous token; a separate draft model also reads the last sampled token. Where one pass makes all drafts, it
    computes a mask for each further one besides (`one_pass_rows`), and the head reads a row for each draft.

    Under SGLang (`drafts_first`) the further passes come in front of the verification, in decodes without prompts; with
    a tree of drafts each computes `width` tokens of a sequence. A separate draft model reads no further token.

    Parameters
    ----------
    model : LatencyModel of the target, with other overheads of the engine.
    drafts : per sequence.
    share : share of the target's time for these tokens, without engine overheads; 0: not used.
    forward_us : time added to each of the drafter's `drafts` forward passes.
    sequence_us : host time per sequence of a batch.
    notes : sentences for `warnings`.
    drafter : LatencyModel of a separate draft model, instead of a share; None: there is none.

    Notes
    -----
    The drafter's work follows vllm-project/vllm, vllm/v1/spec_decode, and sglang 0.5.23,
    sglang/srt/speculative/eagle_worker_v2.py (draft, draft_extend). Padding of the drafter's batches
    and its own CUDA graphs are left out; ranks in lock step draft independently.
    """

    cdef LatencyModel _target           # without overheads of the engine
    cdef LatencyModel _drafter          # None: a share of the target's time
    cdef int32_t _drafts
    cdef public bint skips              # nothing is drafted in an iteration behind which no drafts can be verified
    cdef public bint is_whole           # each draft computes all tokens of the batch, not the first one alone
    cdef public int32_t one_pass_rows   # of a sequence in the only pass, beside the batch; 0: a pass for each draft
    cdef public bint drafts_first       # further passes are in front of a verification, not behind a batch
    cdef public int32_t width           # tokens of a sequence in a further pass
    cdef double _share, _forward_ns, _sequence_ns
    cdef list _notes

    def __init__(self, LatencyModel model, int32_t drafts, double share, double forward_us, double sequence_us,
                 notes=(), LatencyModel drafter=None):
        EngineOverhead.__init__(self, model)
        self._drafter = drafter
        if drafter is not None:
            self.is_monotone = self.is_monotone and drafter.is_monotone
            self.is_shareable = self.is_shareable and drafter.is_shareable
            self.keeps_account = self.keeps_account or drafter.has_account()
        self._target = model
        while isinstance(self._target, EngineOverhead):
            self._target = (<EngineOverhead>self._target).model
        self._drafts, self._share, self.width = drafts, share, 1
        self._forward_ns, self._sequence_ns = forward_us * 1e3, sequence_us * 1e3
        self._notes = list(notes)

    def drafting_us(self, prefill=(), decode=(), int tokens_per_decode=1) -> float:
        """Return the time of the drafter, in microseconds; arguments as in `predict`."""
        return 1e6 * (self.predict(prefill, decode, tokens_per_decode)
                      - self.model.predict(prefill, decode, tokens_per_decode))

    cdef double _drafting_ns(self, const BatchShape* shape) noexcept nogil:
        cdef int32_t passes = 1 if self.one_pass_rows > 0 or self._is_first_alone(shape) else self._drafts
        cdef double ns = self._sequence_ns * shape.num_sequences + self._forward_ns * passes
        if self.skips and (shape.num_samples == 0 or shape.wastes_drafts):
            return 0.0
        if self._drafter is not None:
            return ns + self._passes_ns(self._drafter, shape, True)
        return ns + self._share * self._own_passes_ns(shape) if self._share > 0.0 else ns

    cdef inline bint _is_first_alone(self, const BatchShape* shape) noexcept nogil:
        """Return whether the drafter only completes its KV: drafts follow with the next decode."""
        return self.drafts_first and shape.num_chunks > 0

    cdef double _own_passes_ns(self, const BatchShape* shape) noexcept nogil:
        """Return the hypothetical time of the target for all drafts; these passes are not counted."""
        cdef int32_t weight = self._target.weight
        cdef bint is_ahead = self._target.is_ahead
        cdef double ns
        if not self._target.has_account():
            return self._passes_ns(self._target, shape, False)
        self._target.count(0, False)
        ns = self._passes_ns(self._target, shape, False)
        self._target.count(weight, is_ahead)
        return ns

    cdef double _passes_ns(self, LatencyModel model, const BatchShape* shape, bint is_separate) noexcept nogil:
        """Return the time of a model for all drafts; `is_separate`: it also reads the last sampled token."""
        cdef BatchShape pass_of = shape[0]
        cdef double ns
        if is_separate and not self.drafts_first:       # for chunks, of many tokens, the additional token is neglected
            pass_of.decode_tokens += shape.num_decodes
            pass_of.context_tokens += shape.num_decodes
        if self.one_pass_rows > 0:      # masks; those of chunks are neglected, too
            pass_of.decode_tokens += <int64_t>self.one_pass_rows * shape.num_decodes
            pass_of.context_tokens += <int64_t>self.one_pass_rows * shape.num_decodes
            pass_of.num_samples *= self._drafts
        ns = model.batch_ns(&pass_of)
        if self.one_pass_rows > 0 or self._is_first_alone(shape):
            pass
        elif self.is_whole:
            ns *= self._drafts
        elif self._drafts > 1:
            # after a prompt the drafter reads the context of the sequence, as for a decoding sequence
            pass_of.num_decodes, pass_of.num_chunks = shape.num_sequences, 0
            pass_of.num_samples = pass_of.decode_tokens = <int64_t>self.width * shape.num_sequences
            pass_of.context_tokens += shape.prefill_context_tokens + shape.prefill_tokens
            pass_of.prefill_tokens = pass_of.prefill_context_tokens = pass_of.prefill_token_pairs = 0
            pass_of.chunks = NULL
            pass_of.pad_tokens = 0
            ns += (self._drafts - 1) * model.batch_ns(&pass_of)
        if model.has_failed():
            self.failed = True
        return ns

    cdef double around_ns(self, const BatchShape* shape, double ns) noexcept nogil:
        return ns + self._drafting_ns(shape)

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        """Return the times of the stages; the drafter runs in the last one."""
        self.model.stages_ns(shape, ns)
        self.note_fault()
        ns[self.num_stages - 1] += self._drafting_ns(shape)

    cdef void count(self, int32_t weight, bint is_ahead) noexcept nogil:
        EngineOverhead.count(self, weight, is_ahead)
        if self._drafter is not None:
            self._drafter.count(weight, is_ahead)

    def provenance(self) -> dict:
        """Return the provenance of the model, and of a draft model with its own latency model."""
        found = self._drafter.provenance() if self._drafter is not None else {}
        return self.model.provenance() | ({"draft_model": found} if found else {})

    def warnings(self) -> list:
        """Return the warnings of the model, and of the drafter."""
        found = self._drafter.warnings() if self._drafter is not None else []
        return self.model.warnings() + [f"draft model: {warning}" for warning in found] + self._notes

    def raise_if_failed(self):
        """Raise the error of the model or of the drafter, if there is one."""
        EngineOverhead.raise_if_failed(self)
        if self._drafter is not None:
            self._drafter.raise_if_failed()
