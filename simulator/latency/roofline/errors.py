"""Errors of the roofline: of its laws, or of shares of peak, on tables of single operators."""
import hashlib

from msgspec.structs import replace

from simulator.domain.facts import folder
from simulator.errors import InputErrors, KeyFault
from simulator.latency.roofline.kind_laws import kind_error, kind_of
from simulator.latency.roofline.law_errors import law_spread
from simulator.latency.roofline.laws import FILE, LAWLESS, LAWS, efficiency, generation_of
from simulator.latency.roofline.parameters import OF_LINKS, OF_SHARES, efficiency_by
from simulator.latency.uncertainty.known_errors import FORMULA
from simulator.latency.uncertainty.spread import OperatorError, normal_spread

UNKNOWN = OperatorError(None, is_outside=True)
SMALL = ("activations", "latencies", "sampler")
COEFFICIENTS = {                # of RooflineCosts, by operator
    "dense": ("dense_prefill_ns", "dense_decode_ns", "dense_weights_ns", "dense_ns"),
    "experts": ("expert_prefill_ns", "expert_decode_ns", "expert_weights_ns", "experts_ns", "even_experts_ns"),
    "head": ("head_sample_ns", "head_weights_ns", "head_ns"),
    "collectives": ("collective_token_ns", "gather_token_ns", "handover_ns", "handover_token_ns"),
    "activations": ("activation_token_ns",), "sampler": ("sampler_sample_ns",),
    "state": ("state_sequence_ns", "state_token_ns")}
OF_ATTENTION = {                # of AttentionCosts
    "prefill_attention": ("pair_ns", "expand_ns", "latent_pair_ns", "prefill_kv_ns", "prefill_context_ns",
                          "prefill_query_ns", "prefill_floor_ns"),
    "decode_attention": ("context_flops_ns", "context_kv_ns", "sequence_ns", "decode_floor_ns")}


def operator_errors(parameters, deployment, has_collective: bool) -> dict[str, OperatorError]:
    """Return the error of each operator, by the names in `breakdown`.

    has_collective : a collective model prices communication, with unknown error.

    Raises
    ------
    InputErrors
        Shares or links are given in the experiment: their error is unknown.
    """
    if given := [key for key in (*OF_SHARES, *OF_LINKS) if getattr(parameters, key) is not None]:
        raise InputErrors([KeyFault(f"latency.{key}: given, not measured, so its error is not known: expected no such "
                                    f"key with latency.uncertainty = true") for key in given])
    by_share = efficiency_by(parameters, deployment.accelerator)[1] is None

    generation = generation_of(deployment.accelerator)[0]

    def law(operator: str, dtype: str = "", is_by_share: bool = by_share) -> OperatorError:
        return OperatorError(law_spread(operator, dtype, deployment.accelerator, is_by_share), is_outside=True)

    def attention(operator: str) -> OperatorError:
        part, cache = deployment.model.attention, "fp8" if deployment.kv_cache_bytes == 1 else "bfloat16"
        key, found = part.error_key, None if by_share else _of_kind(kind_of(part), operator, generation)
        if found is not None:
            return found
        return law(operator, cache, by_share or key not in LAWS) if key in (*LAWS, *LAWLESS) else UNKNOWN

    def state() -> OperatorError:
        parts = [part for part, _ in deployment.model.mixers if part.backend == "state"]
        each = [None if by_share else _of_kind(kind_of(part), phase, generation)
                for part in parts for phase in ("prefill", "decode")]
        return UNKNOWN if None in each else max(each, key=lambda found: found.inside.error_frac)

    found = {"dense": law("products", deployment.matrix_dtype), "head": law("products", deployment.activation_dtype),
             "prefill_attention": attention("prefill"), "decode_attention": attention("decode"),
             **{each: OperatorError(FORMULA, is_outside=True) for each in SMALL},
             "collectives": OperatorError(None) if has_collective else law("all_reduce")}
    if deployment.model.moe:
        found["experts"] = law("experts", deployment.expert_dtype)
    if deployment.model.num_linear_attention_layers:
        found["state"] = state()
    return found


def _of_kind(kind: str, phase: str, generation: str) -> OperatorError | None:
    error = kind_error(kind, phase, generation)
    return error and OperatorError(normal_spread(*error), is_outside=True)


def law_tables() -> dict[str, dict]:
    """Return the source of the laws, in the form of the sources of tables."""
    content = (folder("hardware") / FILE).read_bytes()
    return {"laws": {"file": f"hardware/{FILE}", "version": efficiency().source,
                     "sha256": hashlib.sha256(content).hexdigest()}}


def varied_costs(costs, factors: dict[str, float]):
    """Return RooflineCosts with factors on the times of operators."""
    changed = {}
    for operator, names in COEFFICIENTS.items():
        for name in names:
            value = getattr(costs, name)
            changed[name] = value if value is None else value * factors.get(operator, 1.0)
    started = costs.constant_ns - costs.collective_ns
    changed["collective_ns"] = costs.collective_ns * factors.get("collectives", 1.0)
    changed["constant_ns"] = started * factors.get("latencies", 1.0) + changed["collective_ns"]
    changed |= {name: _varied(getattr(costs, name), factors) for name in ("full_attention", "window_attention")}
    return replace(costs, other_attention=tuple(_varied(each, factors) for each in costs.other_attention), **changed)


def _varied(attention, factors: dict[str, float]):
    """Return AttentionCosts with factors on the times of operators."""
    return replace(attention, **{field: getattr(attention, field) * factors.get(operator, 1.0)
                                 for operator, fields in OF_ATTENTION.items() for field in fields})
