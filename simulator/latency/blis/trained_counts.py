"""Counts of model parts for `trained_physics`: the true ones, or those of BLIS when the coefficients were fitted.

Learned coefficients compensate errors of their counts, so they hold only for counts with equal errors. BLIS
(inference-sim at f90a1e3a, sim/latency/trained_physics_model.go and config.go)

- takes head_dim to be hidden_size / heads and one key and value head width for all models, MLA included;
- gives experts to all layers of a model with experts, but for Llama-4: there it takes interleave_moe_layer_step, 1 in
  Scout and 2 in Maverick, for the number of dense layers between two with experts, and so counts 24 and 16 layers with
  experts of 48, and a dense network of intermediate_size_mlp in the others; it leaves out Llama-4's shared expert;
- takes peak rates from its hardware_config.json: for L40S in fp8 it has the rate for sparse operands.
"""
import msgspec

from simulator.domain.deployment import Deployment
from simulator.domain.model_spec import ModelSpec

# hardware_config.json: TFlopsPeak, TFlopsFP8 (0: none), BwPeakTBs
BLIS_RATES = {
    "h100-sxm-80gb": (989.5, 1979.0, 3.35),
    "a100-sxm-80gb": (312.0, 0.0, 2.039),
    "l40s": (362.05, 1466.0, 0.864),
}
# Kinds of token mixers that the counts hold for; the work of states is left out.
COUNTED = ("multi_head", "multi_head_latent", "gated_delta_net", "lightning", "mamba2")
LLAMA_4_DENSE_SIZE = 16384      # intermediate_size_mlp in config.json of Scout and Maverick


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Weights and elements of a model, all ranks together."""

    projections: float          # weights of the token mixers, all layers
    pair_flops: float           # FLOPs per (query, key) pair, all layers
    kv_elements: float          # per token, all layers
    num_moe_layers: int
    num_dense_layers: int
    expert: float = 0.0         # weights of one routed expert
    shared: float = 0.0         # weights of the shared experts of a layer
    dense: float = 0.0          # weights of the dense network of a layer
    num_experts: int = 0
    experts_per_token: int = 0
    alternates: bool = False    # layers with experts and dense layers alternate


class PeakRates(msgspec.Struct, frozen=True, kw_only=True):
    """Peak rates of an accelerator, per microsecond."""

    flops: float
    memory_bytes: float


def model_counts(model: ModelSpec) -> Counts:
    """Return the true counts of the model."""
    width, moe = model.hidden_size, model.moe
    experts = {} if moe is None else {
        "expert": moe.expert_matrix_parameters(width), "num_experts": moe.num_experts,
        "shared": moe.shared_expert.matrix_parameters(width) if moe.shared_expert else 0,
        "experts_per_token": moe.experts_per_token, "alternates": model.moe_layer_interval > 1}
    return Counts(
        projections=sum(layers * part.matrix_parameters(width) for part, layers in model.mixers),
        pair_flops=sum(layers * part.flops_per_context_token for part, layers, _ in model.attentions),
        kv_elements=model.kv_elements_per_token,
        num_moe_layers=model.num_moe_layers,
        num_dense_layers=sum(kind in ("dense", "both") for kind in model.feed_forward_types),
        dense=model.mlp.matrix_parameters(width) if model.mlp else 0,
        **experts)


def blis_counts(model: ModelSpec) -> Counts:
    """Return the counts of BLIS; see the module's docstring."""
    layers, width, heads = model.num_layers, model.hidden_size, model.attention.num_heads
    head_dim = width // heads
    kv_width = model.attention.config_kv_heads * head_dim
    common = {
        "projections": layers * width * (2 * width + 2 * kv_width), "pair_flops": layers * 4 * heads * head_dim,
        "kv_elements": layers * 2 * kv_width}
    moe = model.moe
    if moe is None:
        return Counts(
            num_moe_layers=0, num_dense_layers=layers, dense=3 * width * model.mlp.intermediate_size, **common)
    llama_4 = model.sliding_attention is not None and model.sliding_attention.chunked
    moe_layers = layers // (model.moe_layer_interval + 1) if llama_4 else layers
    return Counts(
        num_moe_layers=moe_layers, num_dense_layers=layers - moe_layers, num_experts=moe.num_experts,
        experts_per_token=moe.experts_per_token, expert=3 * width * moe.intermediate_size,
        shared=0 if llama_4 else 3 * width * moe.shared_intermediate_size,
        dense=3 * width * LLAMA_4_DENSE_SIZE if llama_4 else 0, alternates=llama_4, **common)


def datasheet_rates(deployment: Deployment) -> PeakRates:
    """Return the accelerator's peak rates, for the format of the matrices."""
    accelerator = deployment.accelerator
    return PeakRates(flops=accelerator.flops_per_s(deployment.matrix_dtype) / 1e6,
                     memory_bytes=accelerator.memory_bandwidth_bytes_per_s / 1e6)


def blis_rates(deployment: Deployment) -> PeakRates:
    """Return BLIS's peak rates of the accelerator, or the datasheet's."""
    if deployment.accelerator.name not in BLIS_RATES:
        return datasheet_rates(deployment)
    tera_flops, fp8_tera_flops, tera_bytes = BLIS_RATES[deployment.accelerator.name]
    if deployment.matrix_bytes == 1.0 and fp8_tera_flops:
        tera_flops = fp8_tera_flops
    return PeakRates(flops=tera_flops * 1e6, memory_bytes=tera_bytes * 1e6)
