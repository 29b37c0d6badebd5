"""vLLM's groups of the layers of a model with several kinds, and the size of a block of their common pool.

Source: vLLM, vllm/v1/core/kv_cache_utils.py (get_kv_cache_groups and its callees), vllm/v1/kv_cache_interface.py
(max_memory_usage_bytes) and vllm/platforms/interface.py (_align_hybrid_block_size), as of 2026.
"""
import math

import msgspec

from simulator.domain.deployment import BLACKWELL, Deployment
from simulator.domain.drafter_memory import DrafterMemory
from simulator.domain.kv_layout import has_packed_fp8
from simulator.domain.kv_pages import Page, packs_pages, pages_of
from simulator.domain.layer_groups import GroupRules, LayerGroup, LayerGroups, counted
from simulator.domain.packed_groups import packed_groups

# Kinds with numbers of layers that differ by less than this factor have groups of the larger one, and one is padded;
# else of the smaller number (kv_cache_utils.py, _get_kv_cache_groups_uniform_page_size; 1.25 until 2025).
GROUP_SIZE_SLACK = 1.5
# Attention kernels read blocks of multiples of this many tokens (AttentionBackend.get_supported_kernel_block_sizes).
KERNEL_BLOCK_TOKENS = 16
# Blocks of latent attention beside states (vllm/platforms/interface.py, _align_hybrid_block_size).
LATENT_BLOCK_TOKENS = 128
# FlashInfer's kernel of Gated DeltaNet: tokens of its chunks, and elements of the keys that it takes on Blackwell.
DELTA_CHUNK_TOKENS, DELTA_KEY_ELEMENTS = 64, 128
DEFAULT_RULES = GroupRules()


class GroupPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of one model.

    pages : of the layers of each group, a drafter's behind the model's. num_layers : of the model.
    """

    layers: LayerGroups
    pages: tuple[tuple[Page, ...], ...]
    num_layers: int

    @property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """Layers of each group; one with several caches in a group is there as often."""
        return tuple(tuple(page.layer for page in group) for group in self.pages)

    @property
    def page_bytes(self) -> float:
        """Bytes of the largest page, on one accelerator."""
        return max(page.num_bytes for group in self.pages for page in group)

    @property
    def size(self) -> int:
        """Pages of the group that has most."""
        return max(map(len, self.pages))

    def block_bytes(self, layers: range) -> float:
        """Return the bytes of a block of the pool on an accelerator that holds `layers`.

        It has room for the pages of any group. With the model's last layer there are the drafter's.
        """
        stop = layers.stop if layers.stop < self.num_layers else math.inf
        return max(sum(page.num_bytes for page in group if layers.start <= page.layer < stop) for group in self.pages)

    def moved_bytes(self, deployment: Deployment) -> tuple[float, ...]:
        """Return the bytes of a block of each group on all ranks, unpadded.

        A drafter's are left out.
        """
        ranks = deployment.parallelism.tensor_parallel
        return tuple(ranks * sum(page.own_bytes for page in group if page.layer < self.num_layers)
                     for group in self.pages)

    def blocks_of_request(self, num_tokens: int, in_flight_tokens: int) -> int:
        """Return the blocks of a request in all groups; see LayerGroups."""
        return self.layers.blocks_of_request(num_tokens, in_flight_tokens)

    def explain(self) -> list[str]:
        """Return a line for the pool, and one for each sort of groups."""
        sizes, layers = {page.num_bytes for group in self.pages for page in group}, counted(self.size, "layer")
        first = f"a block has pages of {self.page_bytes:.0f} bytes for {layers}, those of any group:"
        if len(sizes) > 1:
            first = f"a block has {self.block_bytes(range(self.num_layers)):.0f} bytes, for the pages of any group:"
        return [first, *self.layers.explain(tuple(len(set(group)) for group in self.members))]


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
    model, ways = deployment.model, deployment.parallelism
    pages = pages_of(deployment, block_size, drafter, rules.num_drafts)
    kinds = {page.kind for page in pages}
    if rules.is_disabled and "linear_attention" in kinds:
        raise ValueError(f"{model.name} has layers of linear attention, which cannot be kept as if they attended to "
                         "the whole context; vLLM refuses it too")
    if kinds <= {"full_attention"} or (rules.is_disabled and len(kinds) > 1):
        return None
    checkpoint = 0
    if "linear_attention" in kinds:
        checkpoint, is_delta = _writes_states(deployment), _writes_delta_states(deployment, rules)
        block_size = _block_size(deployment, block_size, is_delta, rules.num_drafts)
        checkpoint = (rules.prefix_match_unit or block_size) if is_delta else checkpoint
        pages = pages_of(deployment, block_size, drafter, rules.num_drafts)
    if packs_pages(deployment) and ways.decode_context_parallel > 1:
        raise ValueError(f"{model.name}: expected decode_context_parallel = 1, found "
                         f"{ways.decode_context_parallel}: a block holds pages of several sizes")
    grouped = packed_groups(_padded(pages)) if packs_pages(deployment) else _even_groups(pages)
    states = block_size if rules.enable_prefix_caching else max_model_len
    marked = _marked(grouped, rules, model.num_layers)
    groups = tuple(msgspec.structs.replace(
        _group(pages[0], states, max_model_len, rules, checkpoint, ways.decode_context_parallel),
        has_drafter=number in marked)
        for number, pages in enumerate(grouped))
    return GroupPlan(layers=rules.layers(groups, block_size, ways.decode_context_parallel), pages=tuple(grouped),
                     num_layers=model.num_layers)


def _marked(grouped: list[tuple[Page, ...]], rules: GroupRules, num_layers: int) -> set[int]:
    """Return the groups that the engine knows to hold layers of a drafter."""
    last = max(page.layer for pages in grouped for page in pages)
    first = {"none": last + 1, "last": max(last, num_layers), "all": num_layers}[rules.marked]
    return {number for number, pages in enumerate(grouped) if any(page.layer >= first for page in pages)}


def _group(page: Page, state_size: int, max_model_len: int, rules: GroupRules, checkpoint: int,
           shared: int) -> LayerGroup:
    """Return the group of layers with such pages; `shared`: ranks that share the KV of a sequence."""
    if page.kind == "ring":                     # one block for a sequence's life, which no other sequence uses
        return LayerGroup(kind="linear_attention", block_size=max_model_len)
    size = state_size if page.kind == "linear_attention" else page.block_size * shared
    return LayerGroup(kind=page.kind, window=page.window, block_size=size, **_states(page.kind, rules, checkpoint))


def _even_groups(pages: list[Page]) -> list[tuple[Page, ...]]:
    """Return groups of equal pages: those of one kind are divided evenly, and each takes its turn of the layers."""
    if len({(page.kind, page.window) for page in pages}) == 1 and pages[0].kind != "linear_attention":
        return [tuple(pages)]                   # of one type: all in one block table, whatever their sizes
    largest = max(page.num_bytes for page in pages)
    sorts: dict[tuple, list[Page]] = {}
    for page in pages:
        sorts.setdefault(page.sort, []).append(page)
    size = _group_size([len(each) for each in sorts.values()])
    groups = []
    for each in sorts.values():
        count, stretched = -(-len(each) // size), _stretched(each[0], largest)
        alike = [page._replace(layer=page.layer, **stretched) for page in each]
        groups += [tuple(alike[i::count]) for i in range(count)]
    return groups


def _padded(pages: list[Page]) -> list[Page]:
    """Return pages with those of states as large as those of attention."""
    largest = max((page.num_bytes for page in pages if page.kind == "full_attention"), default=0.0)
    return [page._replace(num_bytes=max(largest, page.num_bytes)) if page.kind == "linear_attention" else page
            for page in pages]


def _states(kind: str, rules: GroupRules, checkpoint: int) -> dict:
    """Return the fields of a group that say how it keeps states."""
    is_aligned = kind == "linear_attention" and rules.enable_prefix_caching
    return {"aligned": is_aligned, "checkpoint": checkpoint if is_aligned else 0,
            "drafts": rules.num_drafts if kind == "linear_attention" else 0}


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


def _writes_states(deployment: Deployment) -> int:
    """Return 1 if kernels of all linear attention write states inside chunks, else 0."""
    return int(all(mixer.part.writes_states for mixer, _ in deployment.model.placed_mixers
                   if mixer.kind == "linear_attention"))


def _block_size(deployment: Deployment, block_size: int, is_delta: bool, num_drafts: int) -> int:
    """Return block_size, raised so that a block of attention holds as much as a state.

    The page of a state is padded to that of such a block.

    is_delta : FlashInfer's kernel of Gated DeltaNet writes states, where its chunks of 64 tokens end.
    num_drafts : tokens drafted a step.
    """
    ranks, drawn = deployment.parallelism.tensor_parallel, deployment.model.placed_mixers
    full = [mixer.part.shard(ranks) for mixer, _ in drawn if mixer.kind == "full_attention"]
    multiple = max(block_size, KERNEL_BLOCK_TOKENS)
    if any(part.backend == "mla" for part in full):
        multiple = max(multiple, LATENT_BLOCK_TOKENS)
    if is_delta:
        multiple = math.lcm(multiple, DELTA_CHUNK_TOKENS)
    token = max((part.aligned_token_bytes(deployment.kv_cache_bytes, has_packed_fp8(deployment)) for part in full),
                default=0.0)
    state = max(mixer.part.shard(ranks).state_bytes(deployment.activation_bytes, num_drafts) for mixer, _ in drawn
                if mixer.kind == "linear_attention")
    return max(block_size, multiple * math.ceil(state / (multiple * token))) if token else block_size


def _stretched(page: Page, largest: float) -> dict:
    """Return the fields of pages as large as those of all kinds: of more tokens where these divide, else padded.

    Raises
    ------
    ValueError
        Rows of latent attention, which kernels read one behind the other, would be padded. Source: vLLM 0.33.0,
        vllm/v1/core/kv_cache_planning.py, unify_kv_cache_spec_page_size; the same in 0.32.
    """
    ratio = largest / page.num_bytes
    if page.is_latent and abs(ratio - round(ratio)) > 1e-9:
        raise ValueError(f"a block of latent attention has {page.num_bytes:.0f} bytes, which do not divide the largest "
                         f"of other layers, {largest:.0f}, and cannot be padded; vLLM refuses it too")
    if page.kind == "linear_attention" or abs(ratio - round(ratio)) > 1e-9:
        return {"num_bytes": largest}
    return {"num_bytes": largest, "block_size": page.block_size * round(ratio),
            "own_bytes": page.own_bytes * round(ratio)}


def _group_size(counts: list[int]) -> int:
    return max(counts) if max(counts) < min(counts) * GROUP_SIZE_SLACK else min(counts)
