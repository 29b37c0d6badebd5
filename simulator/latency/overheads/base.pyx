"""Engine overhead on the time of a batch: a latency model around another one.

A backend prices the computation of an iteration. Other work of the engine, before or beside it (padding, loading
adapters, encoding images, masking logits), is a separate model around the backend: it overrides `around_ns`, and for
pipelines `stages_ns`, which calls `model` and then `note_fault`. It is also a pure function of the shape, so
fast-forward, ranks in lock step and stragglers need no special code for it.
"""
from libc.stdint cimport int32_t

from simulator.latency.gathering cimport Gathered


cdef class EngineOverhead(LatencyModel):
    """A latency model that wraps `model`; by itself it adds nothing."""

    def __init__(self, LatencyModel model):
        self.model = model
        self.take_host_of(model, 1.0)
        self.is_monotone, self.is_shareable, self.pads = model.is_monotone, model.is_shareable, model.pads
        self.prices_spread, self.keeps_account = model.prices_spread, model.has_account()
        if model.num_stages > 1:
            self.set_stages([1] * model.num_stages)     # allocates the stages; `model` has their layers

    cdef double around_ns(self, const BatchShape* shape, double ns) noexcept nogil:
        return ns

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        cdef double ns = self.model.batch_ns(shape)
        self.note_fault()
        return self.around_ns(shape, ns)

    cdef double rank_ns(self, const BatchShape* shape, const Gathered* gathered, int32_t num_ranks) noexcept nogil:
        cdef double ns = self.model.rank_ns(shape, gathered, num_ranks)
        self.note_fault()
        return self.around_ns(shape, ns)

    cdef void pad(self, BatchShape* shapes, int32_t num_busy, int32_t num_ranks) noexcept nogil:
        self.model.pad(shapes, num_busy, num_ranks)

    cdef void count(self, int32_t weight, bint is_ahead) noexcept nogil:
        LatencyModel.count(self, weight, is_ahead)
        self.model.count(weight, is_ahead)

    cdef void stages_ns(self, const BatchShape* shape, double* ns) noexcept nogil:
        self.model.stages_ns(shape, ns)
        self.note_fault()

    def breakdown(self, prefill=(), decode=(), int tokens_per_decode=1) -> dict:
        """Return the parts of the model, and the time added to them; arguments as in `predict`."""
        parts = self.model.breakdown(prefill, decode, tokens_per_decode)
        whole = self.predict(prefill, decode, tokens_per_decode)
        added = whole - self.model.predict(prefill, decode, tokens_per_decode)
        if not added:
            return parts
        name = type(self).__name__.lower()
        return {"model": whole - added, name: added} if not parts else parts | {name: added}

    def host_terms(self) -> dict:
        """Return the host terms of the model."""
        return self.model.host_terms()

    def provenance(self) -> dict:
        """Return the provenance of the model."""
        return self.model.provenance()

    def warnings(self) -> list:
        """Return the warnings of the model."""
        return self.model.warnings()

    def raise_if_failed(self):
        """Raise the error of the model, if it has one."""
        self.failed = False
        self.model.raise_if_failed()
