"""vLLM's groups of the layers of a model with several kinds, and the size of a block of their common pool.

Source: vLLM, vllm/v1/core/kv_cache_utils.py (get_kv_cache_groups and its callees), vllm/v1/kv_cache_interface.py
(max_memory_usage_bytes) and vllm/platforms/interface.py (_align_hybrid_block_size), as of 2026.
"""
import math
from typing import NamedTuple

import msgspec

from simulator.domain.deployment import Deployment
from simulator.domain.drafter_memory import DrafterMemory
from simulator.domain.kv_layout import BLACKWELL, page_bytes
from simulator.domain.layer_groups import GroupRules, LayerGroup, LayerGroups, counted
from simulator.domain.layer_list import PlacedMixer

# Kinds with numbers of layers that differ by less than this factor have groups of the larger one, and one is padded;
# else of the smaller number (kv_cache_utils.py, _get_kv_cache_groups_uniform_page_size; 1.25 until 2025).
GROUP_SIZE_SLACK = 1.5
# Attention kernels read blocks of multiples of this many tokens (AttentionBackend.get_supported_kernel_block_sizes).
KERNEL_BLOCK_TOKENS = 16
# FlashInfer's kernel of Gated DeltaNet: tokens of its chunks, and elements of the keys that it takes on Blackwell.
DELTA_CHUNK_TOKENS, DELTA_KEY_ELEMENTS = 64, 128
DEFAULT_RULES = GroupRules()


class GroupPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of one model."""

    layers: LayerGroups
    members: tuple[tuple[int, ...], ...]        # layers of each group, a drafter's behind the model's
    mixers: tuple[PlacedMixer | None, ...]      # of each group; None: a drafter's
    num_layers: int                             # of the model
    page_bytes: float                           # of a block in one layer, on one accelerator; the largest of all kinds

    @property
    def size(self) -> int:
        """Layers that a block of the pool has pages for."""
        return max(map(len, self.members))

    def block_bytes(self, layers: range) -> float:
        """Return the bytes of a block of the pool on an accelerator that holds `layers`.

        With the model's last layer there are the drafter's.
        """
        stop = layers.stop if layers.stop < self.num_layers else math.inf
        return self.page_bytes * max(sum(layers.start <= layer < stop for layer in group) for group in self.members)

    def moved_bytes(self, deployment: Deployment) -> tuple[float, ...]:
        """Return the bytes of a block of each group on all ranks, unpadded.

        A drafter's are left out.
        """
        ranks = deployment.parallelism.tensor_parallel
        return tuple(ranks * sum(page_bytes(deployment, mixer.part, group.block_size) for layer in layers
                                 if layer < self.num_layers)
                     for group, layers, mixer in zip(self.layers.groups, self.members, self.mixers, strict=True))

    def blocks_of_request(self, num_tokens: int, in_flight_tokens: int) -> int:
        """Return the blocks of a request, as vLLM's start-up check counts them.

        A window also holds the tokens in flight, and one more block because it seldom begins at a block's edge; of
        states kept where blocks end there are two, and a third where kernels write one inside a chunk.

        in_flight_tokens : of iterations that are not over: max_num_batched_tokens for each batch at a time.
        """
        return sum(_blocks_of_request(group, num_tokens, in_flight_tokens) for group in self.layers.groups)

    def explain(self) -> list[str]:
        """Return a line for the pool, and one for each sort of groups."""
        layers = counted(self.size, "layer")
        return [f"a block has pages of {self.page_bytes:.0f} bytes for {layers}, those of any group:",
                *self.layers.explain(tuple(map(len, self.members)))]


def _blocks_of_request(group: LayerGroup, num_tokens: int, in_flight_tokens: int) -> int:
    if group.kind == "sliding_attention":
        return -(-min(group.window - 1 + in_flight_tokens, num_tokens) // group.block_size) + 1
    if group.kind == "chunked_attention":
        return -(-min(group.window + in_flight_tokens, num_tokens) // group.block_size)
    return 2 + (group.checkpoint > 0) if group.aligned else -(-num_tokens // group.block_size)


class Sort(NamedTuple):
    """Layers with equal pages.

    mixer : None: a drafter's.
    """

    layer_type: str
    page_bytes: float
    layers: tuple[int, ...]
    mixer: PlacedMixer | None


def _sorts(deployment: Deployment, block_size: int, drafter: DrafterMemory | None) -> list[Sort]:
    """Return the sorts of layers in the order of their first; a drafter's attend to the whole context."""
    model = deployment.model
    placed: dict[PlacedMixer, list[int]] = {}
    for number, layer in enumerate(model.layers):
        for mixer in layer.mixers:
            placed.setdefault(mixer, []).append(number)
    sorts = [Sort(mixer.kind, page_bytes(deployment, mixer.part, block_size), tuple(numbers), mixer)
             for mixer, numbers in placed.items()]
    if drafter is None or not drafter.num_kv_layers:
        return sorts
    page = drafter.kv_bytes_per_token / drafter.num_kv_layers * block_size
    own = tuple(range(model.num_layers, model.num_layers + drafter.num_kv_layers))
    for i, sort in enumerate(sorts):
        if sort[:2] == ("full_attention", page):
            sorts[i] = sort._replace(layers=sort.layers + own)
            return sorts
    return [*sorts, Sort("full_attention", page, own, None)]


def plan_groups(deployment: Deployment, block_size: int, max_model_len: int, rules: GroupRules = DEFAULT_RULES,
                drafter: DrafterMemory | None = None) -> GroupPlan | None:
    """Return the groups of a model; None: all layers share one block table.

    deployment : without an accelerator no kernels of FlashInfer run.
    block_size, max_model_len : the engine's, under vLLM's names.
    drafter : with layers of full attention beside the model's; None: there is none, or one without KV.

    Raises
    ------
    ValueError
        States of linear attention cannot share a block table with anything else.
    """
    model = deployment.model
    kinds = {sort.layer_type for sort in _sorts(deployment, block_size, drafter)}
    if rules.is_disabled and "linear_attention" in kinds:
        raise ValueError(f"{model.name} has layers of linear attention, which cannot be kept as if they attended to "
                         "the whole context; vLLM refuses it too")
    if kinds <= {"full_attention"} or (rules.is_disabled and len(kinds) > 1):
        return None
    checkpoint = 0
    if "linear_attention" in kinds:
        checkpoint, is_delta = int(model.linear_attention.writes_states), _writes_delta_states(deployment, rules)
        block_size = _block_size(deployment, block_size, is_delta)
        checkpoint = (rules.prefix_match_unit or block_size) if is_delta else checkpoint
    sorts = _sorts(deployment, block_size, drafter)
    largest, size = max(sort.page_bytes for sort in sorts), _group_size([len(sort.layers) for sort in sorts])
    state_size = block_size if rules.enable_prefix_caching else max_model_len
    shared = deployment.parallelism.decode_context_parallel
    groups, members, mixers = [], [], []
    for kind, page, layers, mixer in sorts:
        count = -(-len(layers) // size)
        stretched = _stretched(block_size, largest, page)
        groups += [LayerGroup(kind=mixer.group_kind if mixer else kind, window=mixer.window if mixer else 0,
                              block_size=state_size if kind == "linear_attention" else stretched * shared,
                              **_states(kind, rules, checkpoint))] * count
        members += [layers[i::count] for i in range(count)]
        mixers += [mixer] * count
    return GroupPlan(
        layers=rules.layers(tuple(groups), block_size, shared), members=tuple(members), mixers=tuple(mixers),
        page_bytes=largest, num_layers=model.num_layers)


def _states(kind: str, rules: GroupRules, checkpoint: int) -> dict:
    """Return the fields of a group that say how it keeps states."""
    is_aligned = kind == "linear_attention" and rules.enable_prefix_caching
    return {"aligned": is_aligned, "checkpoint": checkpoint if is_aligned else 0}


def _writes_delta_states(deployment: Deployment, rules: GroupRules) -> bool:
    """Return whether FlashInfer's kernel of Gated DeltaNet writes states inside chunks.

    It runs on Hopper, and on Blackwell for keys of 128 elements. Source: vLLM 0.32.0,
    vllm/model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py (_resolve_gdn_prefill_backend).
    """
    mixer, accelerator = deployment.model.linear_attention, deployment.accelerator
    if not (rules.writes_delta_states and rules.enable_prefix_caching and accelerator is not None
            and mixer.kind == "gated_delta_net"):
        return False
    return accelerator.architecture == "Hopper" or (
        accelerator.architecture in BLACKWELL and mixer.key_head_dim == DELTA_KEY_ELEMENTS)


def _block_size(deployment: Deployment, block_size: int, is_delta: bool) -> int:
    """Return block_size, raised so that a block of attention holds as much as a state.

    The page of a state is padded to that of such a block.

    is_delta : FlashInfer's kernel of Gated DeltaNet writes states, where its chunks of 64 tokens end.
    """
    multiple = max(block_size, KERNEL_BLOCK_TOKENS)
    if is_delta:
        multiple = math.lcm(multiple, DELTA_CHUNK_TOKENS)
    mixers = [mixer for mixer, _ in deployment.model.placed_mixers]
    block = max((page_bytes(deployment, mixer.part, multiple) for mixer in mixers if mixer.kind == "full_attention"),
                default=0.0)
    state = max(page_bytes(deployment, mixer.part, 0) for mixer in mixers if mixer.kind == "linear_attention")
    if not block:
        return block_size
    return max(block_size, multiple * math.ceil(state / block))


def _stretched(block_size: int, page_bytes: float, own_bytes: float) -> int:
    """Return the tokens of blocks with the pages of all kinds: more where these divide, else the page is padded."""
    ratio = page_bytes / own_bytes
    return block_size * round(ratio) if abs(ratio - round(ratio)) < 1e-9 else block_size


def _group_size(counts: list[int]) -> int:
    return max(counts) if max(counts) < min(counts) * GROUP_SIZE_SLACK else min(counts)
