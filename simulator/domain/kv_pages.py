"""Pages of the KV cache: of each layer the caches that it keeps, and the bytes of a block in each, on one rank."""
from typing import NamedTuple

from simulator.domain.deployment import Deployment
from simulator.domain.drafter_memory import DrafterMemory
from simulator.domain.kv_layout import has_packed_fp8, token_bytes
from simulator.domain.layer_list import PlacedMixer


class Page(NamedTuple):
    """A block of one cache of one layer.

    kind : of its group of layers; "ring": the tokens that are not pooled yet, one block for a sequence's life.
    window : tokens; 0: none. block_size : tokens. num_bytes : as kept, own_bytes : unpadded. layer : a drafter's follow
        those of the model. is_whole : each rank keeps the same. is_latent : of latent attention, never padded.
    """

    kind: str
    window: int
    block_size: int
    num_bytes: float
    layer: int
    own_bytes: float
    is_whole: bool = False
    is_latent: bool = False

    @property
    def sort(self) -> tuple:
        """Key of pages that may share a group of equal pages."""
        return self.kind, self.window, self.block_size, self.num_bytes


def packs_pages(deployment: Deployment) -> bool:
    """Return whether a block of the cache holds pages of several sizes."""
    return any(mixer.part.packs_pages for mixer, _ in deployment.model.placed_mixers)


def pages_of(deployment: Deployment, block_size: int, drafter: DrafterMemory | None, num_drafts: int = 0) -> list[Page]:
    """Return the pages of all layers in their order, then those of a drafter's.

    num_drafts : tokens drafted a step, which convolutions of states keep as well.
    """
    model = deployment.model
    shapes = {mixer: _shapes(deployment, mixer, block_size, num_drafts) for mixer, _ in model.placed_mixers}
    pages = [shape._replace(layer=number) for number, layer in enumerate(model.layers)
             for mixer in layer.mixers for shape in shapes[mixer]]
    if drafter is None or not drafter.num_kv_layers:
        return pages
    own = [shape for mixer in drafter.mixers for shape in _shapes(deployment, mixer, block_size)]
    if not drafter.mixers:
        num_bytes = drafter.kv_bytes_per_token / drafter.num_kv_layers * block_size
        own = [Page("full_attention", 0, block_size, num_bytes, 0, num_bytes)]
    return pages + [shape._replace(layer=model.num_layers + number)
                    for number in range(drafter.num_kv_layers) for shape in own]


def _shapes(deployment: Deployment, mixer: PlacedMixer, block_size: int, num_drafts: int = 0) -> list[Page]:
    """Return the pages of a layer with this mixer, whatever its number."""
    part = mixer.part.shard(deployment.parallelism.tensor_parallel)
    if part.packs_pages:
        shapes = part.pages(block_size, deployment.kv_cache_bytes, has_packed_fp8(deployment))
        return [Page(kind, window, block, num_bytes, 0, num_bytes, True) for kind, window, block, num_bytes in shapes]
    num_bytes = token_bytes(deployment, part) * block_size + part.state_bytes(
        deployment.activation_bytes, num_drafts)
    page = Page(mixer.group_kind, mixer.window, block_size, num_bytes, 0, num_bytes, is_latent=part.backend == "mla")
    return [page] if num_bytes else []
