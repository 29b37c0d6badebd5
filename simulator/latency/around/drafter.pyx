"""Speculative decoding: the drafter works after the target model, in the same iteration."""
from libc.stdint cimport int32_t
cimport cython

from simulator.domain.batch cimport BatchShape
from simulator.latency.around.base cimport Around
from simulator.latency.base cimport LatencyModel


@cython.final
cdef class Drafter(Around):
    """An iteration lasts until the drafts of the next one are there.

    A drafter that is a model first computes all tokens of the batch, so that its own KV is complete, and then one token
    of each sequence for each further draft, one after the other.

    Parameters
    ----------
    model : LatencyModel of the target, with what else the engine adds.
    drafts : per sequence.
    share : of the time that the target, without what the engine adds, takes for the same tokens; 0: it has no say.
    forward_us : added to each of the drafter's forward passes, of which there are `drafts`.
    sequence_us : of the host, for each sequence of a batch.
    notes : what is to be said of it beside the results, a sentence each.

    Notes
    -----
    What drafters compute is that of vllm-project/vllm, vllm/v1/spec_decode. Padding of the drafter's batches
    and its own CUDA graphs are left out; of ranks in lock step each drafts as if it were alone.
    """

    cdef LatencyModel _target           # without what the engine adds
    cdef int32_t _drafts
    cdef double _share, _forward_ns, _sequence_ns
    cdef list _notes

    def __init__(self, LatencyModel model, int32_t drafts, double share, double forward_us, double sequence_us,
                 notes=()):
        Around.__init__(self, model)
        self._target = model
        while isinstance(self._target, Around):
            self._target = (<Around>self._target).model
        self._drafts, self._share = drafts, share
        self._forward_ns, self._sequence_ns = forward_us * 1e3, sequence_us * 1e3
        self._notes = list(notes)

    def drafting_us(self, prefill=(), decode=(), int tokens_per_decode=1) -> float:
        """Return how long the drafter works, in microseconds; arguments as `predict`."""
        return 1e6 * (self.predict(prefill, decode, tokens_per_decode)
                      - self.model.predict(prefill, decode, tokens_per_decode))

    cdef double _drafting_ns(self, const BatchShape* shape) noexcept nogil:
        cdef double ns = self._sequence_ns * shape.num_sequences + self._forward_ns * self._drafts
        cdef BatchShape one
        if self._share == 0.0:
            return ns
        ns += self._share * self._target.batch_ns(shape)
        if self._drafts > 1:
            one = shape[0]
            # of a sequence whose prompt has been computed, the drafter reads the same context as one that decodes
            one.num_decodes, one.num_chunks, one.num_samples = one.num_sequences, 0, one.num_sequences
            one.context_tokens += one.prefill_context_tokens + one.prefill_tokens
            one.decode_tokens = one.num_sequences
            one.prefill_tokens = one.prefill_context_tokens = one.prefill_token_pairs = 0
            one.chunks = NULL
            one.pad_tokens = 0
            ns += self._share * (self._drafts - 1) * self._target.batch_ns(&one)
        if self._target.has_failed():
            self.failed = True
        return ns

    cdef double around_ns(self, const BatchShape* shape, double ns) noexcept nogil:
        return ns + self._drafting_ns(shape)

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        """The last stage has the drafter."""
        self.model.stages_ns(shape, ns)
        self.note_fault()
        ns[self.num_stages - 1] += self._drafting_ns(shape)

    def warnings(self) -> list:
        """Return those of the model, and what is to be said of the drafter."""
        return self.model.warnings() + self._notes
