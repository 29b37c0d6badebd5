"""How embeddings come from encode pools to where prompts are computed: what an experiment says of it."""
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.domain.deployment import Deployment


class Embeddings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How embeddings come from encode pools to those for prompts, [embeddings].

    The link of an encode replica sends items one after the other as they are encoded, those too that were in its cache;
    latency_us after its last byte an item has come. Taking it in costs nothing.
    """

    bandwidth_gb_per_s: Annotated[float, Meta(gt=0, le=1e9, description=(
        "of the link of an encode replica, as transfers see it"))]
    latency_us: Annotated[float, Meta(ge=0, le=1e12, description=(
        "of each item besides, which occupies no link; Mooncake's transfer engine took 380 us on 8 RoCE ports, a fit "
        "to its published table of transfer times"))] = 400.0
    bytes_per_embedding: Annotated[Annotated[float, Meta(gt=0, le=1e12)] | None, Meta(description=(
        "on the wire; default: the hidden size of the model of the encode pool times the bytes of an activation. "
        "Models that feed several layers (DeepStack) send more"))] = None


def embedding_bytes(deployment: Deployment) -> float:
    """Return the bytes of an embedding.

    It stands for a token where the first layer reads its input: as many numbers as the hidden size.
    Source: vLLM 0.32.0, vllm/distributed/ec_transfer, which moves the output of the encoder as it is.
    """
    return deployment.model.hidden_size * deployment.activation_bytes
