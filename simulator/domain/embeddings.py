"""Schema of [embeddings]: transfer of embeddings from encode pools to replicas that compute prompts."""
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.domain.deployment import Deployment


class Embeddings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Transfer of embeddings from encode pools to prompt pools, [embeddings].

    The link of an encode replica sends items one after the other as they are encoded, including those from its cache;
    an item arrives latency_us after its last byte. Receiving it costs nothing.
    """

    bandwidth_gb_per_s: Annotated[float, Meta(gt=0, le=1e9, description=(
        "rate of the link of an encode replica, as transfers see it"))]
    latency_us: Annotated[float, Meta(ge=0, le=1e12, description=(
        "latency added to each item, which occupies no link; Mooncake's transfer engine took 380 us on 8 RoCE ports, a "
        "fit to its published table of transfer times"))] = 400.0
    bytes_per_embedding: Annotated[Annotated[float, Meta(gt=0, le=1e12)] | None, Meta(description=(
        "bytes on the wire; default: the hidden size of the model of the encode pool times the bytes of an activation, "
        "and times the layers that it feeds (DeepStack), if its vision tower is of known shape"))] = None


def embedding_bytes(deployment: Deployment) -> float:
    """Return the bytes of an embedding.

    It replaces a token's embedding at the input of the first layer: as many numbers as the hidden size, and as many
    more for each layer that Qwen3-VL's deepstack adds to. Source: vLLM 0.32.0, vllm/distributed/ec_transfer, which
    moves the output of the encoder as it is.
    """
    vision = deployment.model.vision
    return deployment.model.hidden_size * deployment.activation_bytes * (vision.levels if vision is not None else 1)
