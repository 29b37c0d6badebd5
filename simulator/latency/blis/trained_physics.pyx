"""`trained_physics`: terms of a roofline, weighted by coefficients learned from a running server.

With P prompt tokens, D decode tokens, C context tokens of decodes before the step and n sequences, in microseconds,

    beta[0] x arithmetic of prompts + beta[8] x their KV cache written
    + beta[1] x arithmetic of decodes + beta[9] x their KV cache read and written
    + beta[2] x weights read once
    + beta[3] x all-reduces of (P + D) activations + beta[10] x expert exchange over data-parallel ranks
    + beta[4] x layers + beta[5] x n + beta[6]
    + beta[7] x layers with experts, where they alternate with dense ones

each at peak rate; see trained_prices.py. In lock step the experts of a rank compute its part of the tokens of all
ranks, and with all_gather those tokens are exchanged.

Without beta[8] prompts cost beta[0] x the larger of their two terms, without beta[9] decodes cost beta[1] x the larger
of theirs; without beta[7] its term is 0, without beta[10] it equals beta[3]. A chunk of t tokens is charged attention
as if it followed the whole prompt of s tokens, t (s + t / 2) pairs, at any position in the prompt.

Source: inference-sim (BLIS) at f90a1e3a, sim/latency/trained_physics_model.go. Its own accuracy claim: median error of
mean E2E latency 6.7 %, of mean TTFT 17.6 %, over 36 runs outside the fit (docs/blog, how-blis-learns-latency).
"""
cimport cython
from libc.stdint cimport int32_t, int64_t

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.domain.batch cimport BatchShape, repeat_shape
from simulator.latency.batch_view cimport BatchView
from simulator.latency.gathering cimport Gathered
from simulator.latency.blis.learned cimport LearnedModel

from simulator.latency.blis.coefficients import Alpha, Coefficient, Fit, LearnedParameters
from simulator.latency.blis.trained_prices import prices

SETS = {
    "blis": Fit(
        beta=(0.152128, 0.0, 1.36252915, 0.752037, 32.09546717, 4.41684444, 126.024825, 481.8613888, 0.0, 1.94710771,
              0.752037),
        alpha=(15563.199579, 777.3455, 45.907545),
        source=("inference-sim/inference-sim@f90a1e3a defaults.yaml, trained_physics_coefficients; fitted to 15 runs "
                "of vLLM on H100, dense models and mixtures of experts, tensor_parallel 1, 2 and 4"),
        accelerators=("h100-sxm-80gb",), tensor_parallel=(1, 2, 4),
        remark="BLIS reports 15.7 % error of E2E latency on A100, 13.3 % on L40S, 5.5 % on H100"),
}


class TrainedPhysicsParameters(LearnedParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Coefficients: the published fit, or your own."""

    beta: Annotated[Annotated[tuple[Coefficient, ...], Meta(min_length=7, max_length=11)] | None, Meta(description=(
        "7 to 11 numbers: prompt arithmetic, decode arithmetic, weights, all-reduces, us per layer, us per sequence, "
        "us per iteration, us per layer with experts, prompt KV, decode KV, expert exchange"))] = None
    alpha: Annotated[Alpha | None, Meta(description=(
        "us per request before queueing, us per request after its last token, us per output token; default: the set's, "
        "or 0"))] = None
    conventions: Annotated[Literal["blis", "model"] | None, Meta(description=(
        "blis: layers, heads and peak rates as BLIS counts them; model: the true ones; default: blis for a published "
        "set, which was fitted to BLIS's counts, model for your own"))] = None
    expert_exchange: Annotated[Literal["all_gather", "all_to_all"] | None, Meta(description=(
        "exchange of tokens for experts between data-parallel ranks; default: as in [engine.experts], or all_gather"))
        ] = None


cdef struct Prices:             # us; see trained_prices.Prices
    double prefill_token
    double prefill_pair
    double prefill_kv_token
    double decode_token
    double decode_pair
    double decode_kv_token
    double expert_token
    double weights
    double reduce_token
    double exchange_token
    double layers
    double sequence
    double iteration
    double alternation
    double beta_prefill, beta_prefill_kv, beta_decode, beta_decode_kv
    bint splits_prefill, splits_decode


cdef inline double larger(double a, double b) noexcept nogil:
    return a if a > b else b


@cython.final
cdef class TrainedPhysics(LearnedModel):
    """Roofline terms, each weighted by a learned coefficient; fitted on H100."""

    Parameters = TrainedPhysicsParameters
    context_note = ("trained_physics: prompts had tokens in the KV cache, which are not read here, as published: new "
                    "tokens are priced by the length of the prompt, at any position in it")
    needs_deployment = True
    takes_experts = ("all2all_backend",)
    prices_gathered = True

    cdef readonly object prices             # trained_prices.Prices, for reading
    cdef Prices _prices                     # `prices` as a C struct
    cdef object _experts                    # ExpertPricing; None: loaded evenly
    cdef bint _has_experts
    cdef const double[::1] _imbalance       # by tokens of all ranks
    cdef double _copies                     # number of ranks that compute a batch's chunks
    cdef bint _gathers                      # all_gather of tokens for experts; else all_to_all

    def __init__(self, parameters, deployment, experts=None):
        if deployment is None:
            raise ValueError("trained_physics needs [model] and [hardware]")
        LearnedModel.__init__(self, SETS, parameters, deployment, "blis")
        conventions = parameters.conventions or ("blis" if self.choice.name else "model")
        exchange = parameters.expert_exchange or "all_gather"
        self._gathers = exchange == "all_gather"
        self.prices = prices(deployment, self.choice.fit.beta, conventions, exchange)
        self._prices = msgspec.structs.asdict(self.prices)
        self._copies = 1.0
        if experts is not None:
            self._experts, self._has_experts, self._imbalance = experts, True, experts.load.imbalance

    cdef inline double _extra_us(self, const Gathered* experts, double tokens) noexcept nogil:
        """Return the time of experts on the busiest rank beyond the mean, for `tokens` of the batch."""
        cdef int64_t last = self._imbalance.shape[0] - 1
        return self._prices.expert_token * tokens * (
            self._imbalance[min(experts.prefill_tokens + experts.decode_tokens, last)] - 1.0)

    cdef double _prefill_us(self, const BatchShape* shape, const Gathered* experts) noexcept nogil:
        """Return the term of prompts; `experts` : tokens for the experts, of all ranks."""
        cdef const Prices* price = &self._prices
        cdef double tokens = <double>shape.prefill_tokens, gathered = <double>experts.prefill_tokens
        cdef double pairs = 0.0
        cdef double arithmetic, memory
        cdef int i
        for i in range(shape.num_chunks):
            pairs += shape.chunks[i].tokens * (shape.chunks[i].prompt_tokens + 0.5 * shape.chunks[i].tokens)
        pairs *= self._copies
        arithmetic = price.prefill_token * tokens + price.prefill_pair * pairs
        if gathered != tokens:
            arithmetic += price.expert_token * (gathered - tokens)
        if self._has_experts:
            arithmetic += self._extra_us(experts, gathered)
        memory = price.prefill_kv_token * tokens
        if price.splits_prefill:
            return price.beta_prefill * arithmetic + price.beta_prefill_kv * memory
        return price.beta_prefill * larger(arithmetic, memory)

    cdef double rank_ns(self, const BatchShape* shape, const Gathered* gathered, int32_t num_ranks) noexcept nogil:
        # Coefficients are for a batch that is spread over the ranks, so each rank is taken to have this batch. Experts
        # and their gathers are for the batches of all ranks.
        cdef BatchShape alike
        cdef double us
        repeat_shape(&alike, shape, num_ranks)
        alike.num_sequences, alike.num_chunks = shape.num_sequences, shape.num_chunks
        self._copies = num_ranks
        us = self._sum_us(&alike, gathered)
        self._copies = 1.0
        return 1e3 * us

    cdef double _decode_us(self, const BatchShape* shape, const Gathered* experts) noexcept nogil:
        """Return the term of decodes; `experts` : as in _prefill_us."""
        cdef const Prices* price = &self._prices
        cdef double context = <double>(shape.context_tokens - shape.num_decodes)
        cdef double tokens = <double>shape.decode_tokens, gathered = <double>experts.decode_tokens
        cdef double arithmetic, memory
        if shape.decode_tokens != shape.num_decodes:    # speculative decoding: several queries a sequence
            context *= tokens / shape.num_decodes
        arithmetic = price.decode_token * tokens + price.decode_pair * context
        if gathered != tokens:
            arithmetic += price.expert_token * (gathered - tokens)
        if self._has_experts:
            arithmetic += self._extra_us(experts, gathered)
        memory = price.decode_kv_token * <double>shape.context_tokens
        if price.splits_decode:
            return price.beta_decode * arithmetic + price.beta_decode_kv * memory
        return price.beta_decode * larger(arithmetic, memory)

    cdef double batch_ns(self, const BatchShape* shape) noexcept nogil:
        cdef Gathered experts = Gathered(shape.prefill_tokens, shape.decode_tokens)
        return 1e3 * self._sum_us(shape, &experts)

    # Summed in the order of the source, since rounding may decide whether a sum reaches a whole microsecond.
    cdef inline double _sum_us(self, const BatchShape* shape, const Gathered* experts) noexcept nogil:
        cdef const Prices* price = &self._prices
        cdef double tokens = <double>(shape.prefill_tokens + shape.decode_tokens)
        cdef double us = 0.0
        self.note_context(shape)
        if experts.prefill_tokens > 0:
            us = self._prefill_us(shape, experts)
        if experts.decode_tokens > 0:
            us += self._decode_us(shape, experts)
        us += price.weights
        us += price.reduce_token * tokens
        us += price.exchange_token * (
            <double>(experts.prefill_tokens + experts.decode_tokens) if self._gathers else tokens)
        us += price.layers
        us += price.sequence * shape.num_sequences
        us += price.iteration
        us += price.alternation
        return us

    def breakdown(self, prefill=(), decode=(), int tokens_per_decode=1) -> dict:
        """Return the seconds of each term, which sum to the result of `predict`; arguments as in `predict`."""
        cdef BatchView batch = BatchView(prefill, decode, tokens_per_decode)
        cdef const BatchShape* shape = &batch.shape
        cdef Gathered experts = Gathered(shape.prefill_tokens, shape.decode_tokens)
        cdef double tokens = <double>(shape.prefill_tokens + shape.decode_tokens)
        terms_us = {
            "prefill": self._prefill_us(shape, &experts) if shape.num_chunks else 0.0,
            "decode": self._decode_us(shape, &experts) if shape.num_decodes else 0.0,
            "weights": self._prices.weights,
            "all_reduces": self._prices.reduce_token * tokens,
            "expert_exchange": self._prices.exchange_token * tokens,
            "layers": self._prices.layers,
            "sequences": self._prices.sequence * shape.num_sequences,
            "iteration": self._prices.iteration,
            "alternation": self._prices.alternation,
        }
        return {name: us * 1e-6 for name, us in terms_us.items()}

    def host_terms(self) -> dict:
        """Return the keys of [latency.host] that the coefficients give, in microseconds; see also `completion_us`."""
        alpha = self.choice.fit.alpha
        return {"queue_base_us": alpha[0], "queue_per_prompt_token_us": 0.0, "output_token_us": alpha[2]}

    @property
    def completion_us(self) -> float:
        """Time from the last token of a request to its completion, as the client sees it; blocks nothing."""
        return self.choice.fit.alpha[1]

    def warnings(self) -> list:
        """Return warnings outside the fit, and for number formats that the accelerator lacks."""
        notes = LearnedModel.warnings(self) + [f"trained_physics: {note}" for note in self._deployment.format_notes()]
        if self._experts is not None:
            notes += self._experts.warnings(self._deployment, "trained_physics")
            notes.append("trained_physics: experts: coefficients were also fitted to servers with unevenly loaded "
                         "experts, so that a part of the cost of imbalance is counted twice")
        return notes

    def provenance(self) -> dict:
        """Return the source of the coefficients, and of the expert loads."""
        found = LearnedModel.provenance(self)
        return found if self._experts is None else found | {"experts": self._experts.provenance()}
