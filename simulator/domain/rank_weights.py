"""Weights on one accelerator: bytes for a memory plan, and bytes that an iteration reads."""
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from simulator.domain.deployment import Deployment
from simulator.domain.layer_list import Layer
from simulator.domain.layers.base import Product
from simulator.domain.matrix_formats import bytes_of, layer_formats
from simulator.domain.model_spec import ModelSpec

# vLLM pads the rows of embedding and output head to a multiple of 64 before it splits them over ranks
# (DEFAULT_VOCAB_PADDING_SIZE in vllm/model_executor/layers/vocab_parallel_embedding.py).
VOCAB_PADDING = 64


def head_product(model: ModelSpec, tensor_parallel: int) -> Product:
    """Return the output head's product, the vocabulary padded as vLLM does."""
    rows = -(-model.vocab_size // VOCAB_PADDING) * VOCAB_PADDING / tensor_parallel
    return Product("lm_head", rows, model.hidden_size, is_quantized=False)


class RankWeights(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of one tensor-parallel rank in one stage: counts, and bytes of one."""

    matrices: float         # projections of token mixers, dense MLPs and shared experts
    experts: float          # projections of the routed experts it holds
    unquantized: float      # norms, biases, routers and other small tensors
    embedding: float        # input embedding
    lm_head: float          # output head; also where it is tied to the embedding
    is_head_shared: bool    # the head is the embedding on that rank: stored once
    vision: float           # vision tower and projector

    matrix_bytes: float     # mean of one weight, its share of scales included; as are the next two
    expert_bytes: float
    unquantized_bytes: float
    quantized_head_bytes: float | None = None       # of a weight of the output head; None: unquantized_bytes

    @property
    def head_bytes(self) -> float:
        """Bytes of a weight of the output head."""
        return self.unquantized_bytes if self.quantized_head_bytes is None else self.quantized_head_bytes

    @property
    def num_bytes(self) -> float:
        """Bytes stored."""
        head = 0.0 if self.is_head_shared else self.lm_head
        plain = self.unquantized + self.embedding + self.vision
        stored = self.matrices * self.matrix_bytes + self.expert_num_bytes + plain * self.unquantized_bytes
        return stored + head * self.head_bytes

    @property
    def expert_num_bytes(self) -> float:
        """Bytes of projections of routed experts."""
        return self.experts * self.expert_bytes


def rank_weights(deployment: Deployment, layers: range | None = None) -> RankWeights:
    """Count the weights of one rank.

    Attention, dense MLPs and shared experts are split over tensor-parallel ranks and repeated over the ranks that split
    tokens; routed experts are split over both, by expert or by width, as in vLLM's FusedMoEParallelConfig.

    Parameters
    ----------
    deployment : Deployment
    layers : range, optional
        Layers of the stage (`Parallelism.layers_of_stage`); default: all.
    """
    model, ways = deployment.model, deployment.parallelism
    layers = range(model.num_layers) if layers is None else layers
    has_embedding, has_head = layers.start == 0, layers.stop == model.num_layers
    rows = -(-model.vocab_size // VOCAB_PADDING) * VOCAB_PADDING / ways.tensor_parallel * model.hidden_size
    counts = [[layers_alike * count for count in _layer(deployment, kind)]
              for kind, layers_alike in layer_kinds(model, layers).items()]
    plain = sum(count[2] for count in counts)
    if has_embedding:
        plain += model.norm_parameters * model.embedding_norm + model.position_parameters
        plain += sum(each.rank_parameters(model.hidden_size, ways.tensor_parallel) for each in model.embeddings)
    if has_head:
        plain += model.norm_parameters
        plain += model.vocab_size * model.lm_head_bias * model.has_head / ways.tensor_parallel
        plain += model.around_head_parameters + model.pooler_parameters
    matrices, experts = (sum(count[i] for count in counts) for i in (0, 1))
    matrix_bytes, expert_bytes = _mean_bytes(deployment, layers, matrices, experts)
    head = model.head_format if deployment.quantization is model.quantization else None
    return RankWeights(
        matrices=matrices,
        experts=experts,
        unquantized=plain,
        embedding=rows * has_embedding,
        lm_head=rows * has_head * model.has_head,
        is_head_shared=model.tie_word_embeddings and has_embedding and has_head,
        vision=tower_parameters(model, ways.tensor_parallel) * has_embedding,
        matrix_bytes=matrix_bytes,
        expert_bytes=expert_bytes,
        unquantized_bytes=deployment.activation_bytes,
        quantized_head_bytes=head and head.stored_bytes(model.vocab_size, model.hidden_size) / (
            model.vocab_size * model.hidden_size))


def tower_parameters(model: ModelSpec, tensor_parallel: int) -> float:
    """Return the weights of the vision tower on a rank; all split if it has no shape."""
    if model.vision is None:
        return model.vision_parameters / tensor_parallel
    return model.vision.rank_parameters(model.vision_parameters, tensor_parallel)


def layer_bytes(deployment: Deployment, layer: int, parts: Layer | None = None) -> float:
    """Return the bytes that one rank holds of a layer; `parts` : in place of its own."""
    parts = parts or deployment.model.layers[layer]
    matrices, experts, plain = _layer(deployment, parts)
    if deployment.quantization and deployment.quantization.matrices:
        listed = _listed_bytes(deployment, {layer: parts}, range(layer, layer + 1))
        return plain * deployment.activation_bytes + sum(listed)
    left_matrices, left_experts = _left(deployment, layer)
    return ((matrices - left_matrices) * deployment.matrix_bytes + (experts - left_experts) * deployment.expert_bytes
            + (plain + left_matrices + left_experts) * deployment.activation_bytes)


def _mean_bytes(deployment: Deployment, layers: range, matrices: float, experts: float) -> tuple[float, float]:
    """Return the bytes of a weight in the mean, of matrices and of experts of a rank."""
    if deployment.quantization and deployment.quantization.matrices:
        sums = _listed_bytes(deployment, deployment.model.layers, layers)
        return tuple(num_bytes / count if count else deployment.activation_bytes
                     for num_bytes, count in zip(sums, (matrices, experts), strict=True))
    left_matrices, left_experts = (sum(left) for left in zip(*(_left(deployment, i) for i in layers), strict=True))
    return (_mean(matrices, deployment.matrix_bytes, left_matrices, deployment.activation_bytes),
            _mean(experts, deployment.expert_bytes, left_experts, deployment.activation_bytes))


def _listed_bytes(deployment: Deployment, layers: Mapping[int, Layer] | Sequence[Layer],
                  numbers: range) -> tuple[float, float]:
    """Return the bytes of matrices and of experts of a rank, from formats of single matrices."""
    model, ways, plain = deployment.model, deployment.parallelism, deployment.activation_bytes
    matrices = experts = 0.0
    for each in layer_formats(layers, deployment.quantization.matrices, numbers):
        matrices += each.count * sum(bytes_of(matrix, stored, plain) for _, matrix, stored in each.dense(
            model.hidden_size, ways.tensor_parallel))
        experts += each.count * sum(bytes_of(matrix, stored, plain) for matrix, stored in each.experts(
            model.hidden_size)) * deployment.num_expert_slots / ways.expert_ranks
    return matrices, experts


def _left(deployment: Deployment, layer: int) -> tuple[float, float]:
    """Return (matrix, expert) parameters of a layer that stay in the model's dtype, of a rank."""
    quantization, model, ways = deployment.quantization, deployment.model, deployment.parallelism
    if quantization is None or not quantization.unquantized:
        return 0.0, 0.0
    matrices, experts = 0.0, 0.0
    if quantization.scope == "linear":
        matrices = sum(part.shard(ways.tensor_parallel).matrix_parameters(model.hidden_size)
                       for name, part in model.layers[layer].named_parts() if quantization.leaves(name, layer))
    if (moe := model.layers[layer].moe) and quantization.leaves("experts", layer):
        experts = deployment.num_expert_slots * moe.expert_matrix_parameters(model.hidden_size) / ways.expert_ranks
    return matrices, experts


def _mean(count: float, each_bytes: float, left: float, left_bytes: float) -> float:
    """Return the bytes of a weight in the mean, where `left` of `count` take others."""
    return ((count - left) * each_bytes + left * left_bytes) / count if left else each_bytes


def _layer(deployment: Deployment, layer: Layer) -> tuple[float, float, float]:
    """Return (matrix, expert, unquantised) parameters that one rank holds of such a layer."""
    model, ways = deployment.model, deployment.parallelism
    width, tensor = model.hidden_size, ways.tensor_parallel
    parts = [part.shard(tensor) for part in dense_parts(layer)]
    matrices = sum(part.matrix_parameters(width) for part in parts)
    plain = sum(part.num_parameters(width) for part in parts) - matrices + layer.norms * model.norm_parameters
    moe = layer.moe
    if moe is None:
        return matrices, 0.0, plain
    ranks = ways.expert_ranks
    slots = deployment.num_expert_slots
    experts = slots * moe.expert_matrix_parameters(width) / ranks
    biases = slots * moe.expert_parameters(width) / ranks - experts
    table = moe.table_bytes / deployment.activation_bytes
    return matrices, experts, plain + biases + moe.router_parameters(width) + table


def layer_kinds(model: ModelSpec, layers: range | None = None) -> dict[Layer, int]:
    """Count layers, by default all, by their parts."""
    return Counter(model.layers if layers is None else model.layers[layers.start:layers.stop])


def dense_parts(layer: Layer) -> list:
    """Return the parts that all tokens pass: mixers, dense networks, shared experts."""
    return [part for _, part in layer.named_parts()]
