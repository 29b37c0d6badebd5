"""Memory of a drafter on an accelerator: weights, and the KV of each token.

A drafter runs on the last pipeline stage. It shares embedding and output head with the model where both have them:
a draft model by itself shares nothing, an EAGLE-3 head has its own output head with a smaller vocabulary.
Source: vllm-project/vllm, vllm/model_executor/models/{llama_eagle,llama_eagle3,deepseek_mtp}.py, vllm/v1/spec_decode.
"""
import msgspec

from simulator.domain.deployment import Deployment
from simulator.domain.kv_layout import kv_layout, token_bytes
from simulator.domain.layer_list import Layer, PlacedMixer
from simulator.domain.model_spec import ModelSpec
from simulator.domain.rank_weights import dense_parts, layer_bytes, rank_weights

# Words of the output head of EAGLE-3: `draft_vocab_size` of the heads that are published for Llama-3.1-8B, Qwen3 and
# gpt-oss (their config.json).
EAGLE3_VOCABULARY = 32_000
# Hidden states that the first projection of a head takes together: EAGLE an embedding and one of the model, EAGLE-3
# three layers' states. In EAGLE-3 attention reads the embedding beside the result of that projection.
STATES = {"eagle": 2, "eagle3": 3}
# Architectures with MTP modules in their checkpoints (`num_mtp_modules`) that vLLM 0.33 has no method of drafting for
# (`*_mtp`).
NOT_LOADED = ("MiniMaxM2ForCausalLM",)


class DrafterMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes on one accelerator of the last pipeline stage.

    num_kv_layers : layers that share kv_bytes_per_token evenly. mixers : of each; (): they attend to all tokens.
    """

    weights_bytes: float
    kv_bytes_per_token: float
    num_kv_layers: int = 0
    mixers: tuple[PlacedMixer, ...] = ()


def of_draft_model(draft: Deployment) -> DrafterMemory:
    """Return the memory of a separate draft model.

    All its layers attend to the whole context.
    """
    return DrafterMemory(
        weights_bytes=rank_weights(draft).num_bytes, kv_bytes_per_token=kv_layout(draft).bytes_per_token,
        num_kv_layers=draft.model.num_layers)


def of_mtp_modules(deployment: Deployment) -> DrafterMemory:
    """Return the memory of MTP modules, each a layer as `mtp_layer` has it.

    Each also has a projection of embedding and hidden state, which every rank holds whole, and 3 norms.

    Raises
    ------
    ValueError
        The model is not known to have any.
    """
    model = deployment.model
    if not model.num_mtp_layers:
        raise ValueError(f"{model.name} has no MTP modules: its file has num_mtp_layers = 0")
    beside = 2 * model.hidden_size**2 + 3 * model.norm_parameters
    layer = mtp_layer(model)
    num_bytes = layer_bytes(deployment, model.num_layers - 1, layer)
    return DrafterMemory(weights_bytes=model.num_mtp_layers * (num_bytes + beside * deployment.activation_bytes),
                         kv_bytes_per_token=model.num_mtp_layers * _token_bytes(deployment, layer),
                         num_kv_layers=model.num_mtp_layers, mixers=layer.mixers)


def why_not_loaded(architecture: str) -> str:
    """Return why vLLM does not load the MTP modules that a checkpoint declares, or ""."""
    if architecture not in NOT_LOADED:
        return ""
    return f"vLLM has no drafter for the MTP modules of {architecture}, and does not load them"


def mtp_layer(model: ModelSpec) -> Layer:
    """Return the layer of a multi-token prediction module.

    It attends as the model's last layer that does so, with an indexer of its own, and has the last network; some
    families give it a window and the dense network, even behind layers of experts. Source: vLLM 0.33.0,
    vllm/model_executor/models/mimo_v2_mtp.py, and step3p5.py, which counts these layers on behind the last one.

    Raises
    ------
    ValueError
        The model has no such layers.
    """
    last, layers = model.layers[-1], model.layers[::-1]
    if model.mtp_layer == "windowed_dense":
        windows = next((each.mixers for each in layers if each.mixer_kind == "sliding_attention"), ())
        dense = next((each.networks for each in layers if each.network_kind == "dense"), ())
        if not windows or not dense:
            raise ValueError(f'{model.name}: mtp_layer = "windowed_dense" needs a layer with a window and a dense one')
        return Layer(windows, dense, last.norms, last.around)
    mixers = next((layer.mixers for layer in layers if any(
        mixer.kind != "linear_attention" for mixer in layer.mixers)), last.mixers)
    networks = next((layer.networks for layer in layers if layer.networks), ())
    mixers = tuple(mixer._replace(part=mixer.part.drafting) for mixer in mixers if mixer.kind != "linear_attention")
    return Layer(mixers, networks, last.norms if last.mixers and last.networks else 2, last.around)


def of_head(deployment: Deployment, method: str) -> DrafterMemory:
    """Return the memory of an EAGLE head: a layer like the model's last, unquantised.

    It has as many experts as a token uses: heads of models with experts have networks of about that size.

    method : "eagle" or "eagle3".
    """
    model, ways = deployment.model, deployment.parallelism
    width, layer = model.hidden_size, _head_layer(model)
    parts = [part.shard(ways.tensor_parallel) for part in dense_parts(layer)]
    count = sum(part.num_parameters(width) for part in parts) + layer.norms * model.norm_parameters
    if moe := layer.moe:
        count += moe.experts_per_token * moe.expert_parameters(width) / ways.tensor_parallel
    count += STATES[method] * width**2
    if method == "eagle3":
        count += min(EAGLE3_VOCABULARY, model.vocab_size) * width / ways.tensor_parallel
        count += sum(mixer.part.shard(ways.tensor_parallel).input_parameters(width) for mixer in layer.mixers)
    return DrafterMemory(weights_bytes=count * deployment.activation_bytes,
                         kv_bytes_per_token=_token_bytes(deployment, layer), num_kv_layers=1)


def _head_layer(model: ModelSpec) -> Layer:
    """Return the layer of a head: the model's last, or the last sublayers of both sorts, each a layer there."""
    last = model.layers[-1]
    mixers = next((layer.mixers for layer in reversed(model.layers) if layer.mixers and any(
        mixer.kind != "linear_attention" for mixer in layer.mixers)), ())
    return last if last.mixers or not mixers else Layer(mixers, last.networks, 2)


def _token_bytes(deployment: Deployment, layer: Layer) -> float:
    """Return the bytes of a token in such a layer."""
    ranks = deployment.parallelism.tensor_parallel
    return sum(token_bytes(deployment, mixer.part.shard(ranks)) for mixer in layer.mixers)


def of_medusa_heads(deployment: Deployment, num_heads: int) -> DrafterMemory:
    """Return the memory of the Medusa heads; they have no KV."""
    return DrafterMemory(weights_bytes=num_heads * medusa_head_bytes(deployment), kv_bytes_per_token=0.0)


def medusa_head_bytes(deployment: Deployment) -> float:
    """Return the memory of one Medusa head on an accelerator.

    A linear layer, which each rank holds whole, and an output head with a vocabulary split over ranks.
    """
    model, ranks = deployment.model, deployment.parallelism.tensor_parallel
    count = model.hidden_size**2 + model.hidden_size * model.vocab_size / ranks
    return count * deployment.activation_bytes
