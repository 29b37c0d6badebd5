"""`linear`: an iteration takes a constant plus a price per sequence, token and token of context."""
from libc.stdint cimport int64_t
cimport cython
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.domain.batch cimport BatchShape
from simulator.domain.host import MAX_US
from simulator.latency.base cimport LatencyModel
from simulator.latency.batch_view cimport BatchView

Price = Annotated[float, Meta(ge=0, le=MAX_US)]


class LinearParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Duration of one iteration = base + prices x counts; the user fits the prices."""

    base_us: Annotated[Price, Meta(description="constant time of an iteration")] = 5000.0
    per_sequence_us: Annotated[Price, Meta(description="time per scheduled sequence")] = 10.0
    per_prefill_token_us: Annotated[Price, Meta(description="time per prompt token computed")] = 20.0
    per_decode_token_us: Annotated[Price, Meta(description="time per decode token computed")] = 0.0
    per_context_token_us: Annotated[Price, Meta(description=(
        "time per token in KV of a decoding sequence, after the step"))] = 0.05


@cython.final
cdef class Linear(LatencyModel):
    """A constant and four prices; see `LinearParameters`."""

    Parameters = LinearParameters
    takes_padding = prices_context_parallel = True

    cdef double _base, _sequence, _prefill, _decode, _context     # ns

    def __init__(self, parameters, deployment=None):
        self._base = parameters.base_us * 1e3
        self._sequence = parameters.per_sequence_us * 1e3
        self._prefill = parameters.per_prefill_token_us * 1e3
        self._decode = parameters.per_decode_token_us * 1e3
        self._context = parameters.per_context_token_us * 1e3
        self.is_shareable = True
        self.is_monotone = min(self._sequence, self._prefill, self._decode, self._context) >= 0.0

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        cdef int64_t decode_rows = shape.decode_tokens + shape.pad_tokens
        return (self._base + self._sequence * shape.num_sequences + self._prefill * <double>shape.prefill_tokens
                + self._decode * <double>decode_rows + self._context * <double>shape.context_tokens)

    @staticmethod
    def phase_ns(parameters, rows):
        """Return the parts of prompts and of decodes in the duration of iterations: two arrays, in ns.

        parameters : `LinearParameters`. rows : of `records.ITERATION`. Base and sequences are in neither part.
        """
        return (1e3 * parameters.per_prefill_token_us * rows["prefill_tokens"],
                1e3 * (parameters.per_decode_token_us * rows["decode_tokens"]
                       + parameters.per_context_token_us * rows["context_tokens"]))

    def breakdown(self, prefill=(), decode=(), int tokens_per_decode=1) -> dict:
        """Return the seconds of each term, which sum to the result of `predict`; arguments as in `predict`."""
        cdef BatchView batch = BatchView(prefill, decode, tokens_per_decode)
        return {"base": 1e-9 * self._base, "sequences": 1e-9 * self._sequence * batch.shape.num_sequences,
                "prefill": 1e-9 * self._prefill * batch.shape.prefill_tokens,
                "decode": 1e-9 * self._decode * batch.shape.decode_tokens,
                "context": 1e-9 * self._context * batch.shape.context_tokens}
