"""Groups of layers that share a block table, as vLLM's hybrid KV cache manager has them."""
from collections import Counter
from math import gcd, lcm
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Kind = Literal["full_attention", "sliding_attention", "chunked_attention", "linear_attention"]
WORDS = {"full_attention": "full attention", "sliding_attention": "the last {window} tokens",
         "chunked_attention": "chunks of {window} tokens", "linear_attention": "states"}


def counted(count: int, what: str) -> str:
    """Return a count and its noun, in words."""
    return f"{count} {what}{'s' * (count != 1)}"


class LayerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Layers of one kind with one block table.

    kind : of attention.
    block_size : tokens of a block; of states that are not kept for others, the longest text.
    window : tokens of the window or chunk; 0: there is none.
    aligned : of linear attention, states are kept where blocks end (mamba_cache_mode "align"); else a sequence has one.
    checkpoint : of aligned states: a kernel also writes the state where a block ends inside a chunk, that many tokens,
        or a multiple, behind the beginning of the chunk; 0: it does not.
    has_drafter : some layers are a drafter's, which engines know.
    drafts : of linear attention: states that a sequence has besides, one for each draft of a step.
    """

    kind: Kind
    block_size: int
    window: int = 0
    aligned: bool = False
    checkpoint: int = 0
    drafts: int = 0
    has_drafter: bool = False

    @property
    def is_endless(self) -> bool:
        """A sequence has one state for life."""
        return self.kind == "linear_attention" and not self.aligned

    def blocks_of_request(self, num_tokens: int, in_flight_tokens: int) -> int:
        """Return the blocks of a request; see LayerGroups."""
        if self.kind == "sliding_attention":
            return -(-min(self.window - 1 + in_flight_tokens, num_tokens) // self.block_size) + 1
        if self.kind == "chunked_attention":
            return -(-min(self.window + in_flight_tokens, num_tokens) // self.block_size)
        return (2 + (self.checkpoint > 0) if self.aligned else -(-num_tokens // self.block_size)) + self.drafts

    @property
    def words(self) -> str:
        """Text that its layers need, and its blocks, in words."""
        blocks = f"blocks of {self.block_size} tokens"
        if self.kind == "linear_attention":
            blocks = f"one each {self.block_size} tokens, the newest kept" if self.aligned else "one a sequence"
            blocks += f", and {self.drafts} more for drafts" if self.drafts else ""
        return f"{WORDS[self.kind].format(window=self.window)}, {blocks}"


class LayerGroups(msgspec.Struct, frozen=True, kw_only=True):
    """All groups of a model, in the order in which blocks are taken and given back.

    chunk_alignment : chunks of a prompt end at multiples of this number of tokens; 0: anywhere.
    retention_interval : tokens from one place where a window or state is kept for others to the next; 0: only at the
        end of a prompt and where a shared prefix ends; None: wherever a hit may end.
    prefix_match_unit : tokens of the pieces in which texts are hashed; None: as many as divide all blocks.
    context_ways : ranks that share the KV of a sequence.
    hits_are_whole : hits end with whole blocks, for all other arguments.
    """

    groups: tuple[LayerGroup, ...]
    chunk_alignment: int = 0
    retention_interval: int | None = 0
    prefix_match_unit: int | None = None
    context_ways: int = 1
    hits_are_whole: bool = False

    def blocks_of_request(self, num_tokens: int, in_flight_tokens: int) -> int:
        """Return the blocks of a request, as vLLM's start check counts them.

        A window also holds the tokens in flight, and one more block because it seldom begins at a block's edge; of
        states kept where blocks end there are two, and a third where kernels write one inside a chunk; each draft of a
        step has one as well.

        in_flight_tokens : of iterations that are not over: max_num_batched_tokens for each batch at a time.

        Source: vLLM 0.33.0, vllm/v1/kv_cache_interface.py (max_memory_usage_bytes).
        """
        return sum(group.blocks_of_request(num_tokens, in_flight_tokens) for group in self.groups)

    @property
    def unit(self) -> int:
        """Tokens of which all block sizes are divisors."""
        return lcm(*(group.block_size for group in self.groups))

    @property
    def hash_unit(self) -> int:
        """Tokens of the pieces in which texts are hashed, with prefix caching.

        Source: vLLM 0.32.0, vllm/v1/core/kv_cache_utils.py, resolve_kv_cache_block_sizes.
        """
        if len(self.groups) == 1 or any(group.is_endless for group in self.groups):
            return self.unit
        return self.prefix_match_unit or gcd(*(group.block_size for group in self.groups))

    @property
    def hits_are_fine(self) -> bool:
        """Whether a hit may end where any hashed piece ends.

        States are kept there, and no window or chunk is in the way.

        Source: the same file, partial_hash_hits_enabled.
        """
        unit, least = self.hash_unit, self.hash_unit + (self.context_ways == 1)
        return not self.hits_are_whole and len(self.groups) > 1 and any(
            group.aligned and group.block_size >= least for group in self.groups) and all(
            group.block_size == unit for group in self.groups if group.window)

    @property
    def hits_end_inside(self) -> bool:
        """Whether a hit may end inside blocks."""
        return self.hits_are_fine and self.hash_unit < self.unit

    @property
    def has_states(self) -> bool:
        """Some layers keep a state of all text before, and no KV of each token."""
        return any(group.kind == "linear_attention" for group in self.groups)

    @property
    def checkpoint(self) -> int:
        """Tokens between checkpoints inside a chunk, of all states.

        0: some layers with states write none there.
        """
        steps = [group.checkpoint for group in self.groups if group.kind == "linear_attention"]
        return lcm(*steps) if steps else 0

    @property
    def is_even(self) -> bool:
        """Whether blocks are of one size, and some layers need all of a text.

        A statement about these layers then holds for the others too, as far as one may know without them.
        """
        return len({group.block_size for group in self.groups}) == 1 and any(
            group.kind == "full_attention" for group in self.groups)

    def hit_notes(self, has_tier: bool) -> list[str]:
        """Return remarks on the places where hits end, with prefix caching.

        has_tier : there is KV beyond the blocks.
        """
        unit = self.hash_unit
        if self.hits_end_inside and has_tier:
            return [f"hits in the prefix cache end with whole blocks, each {self.unit} tokens, and in vLLM inside of "
                    f"blocks, each {unit}: that is not built together with KV beyond the blocks"]
        if self.hits_end_inside:
            return [f"hits in the prefix cache end inside of blocks, each {unit} tokens; copying these takes no time"]
        if self.prefix_match_unit is None or unit == self.unit:
            return []
        why = "layers with windows or chunks have blocks of other sizes" if self.has_states else "no layer keeps states"
        return [f"prefix_match_unit = {unit}: hits end each {self.unit} tokens all the same, as in vLLM, since {why}"]

    def explain(self, num_layers: tuple[int, ...] = ()) -> list[str]:
        """Return a line for each sort of groups.

        num_layers : of each group, where that is known.
        """
        sizes = num_layers or (0,) * len(self.groups)
        sorts = Counter(zip(self.groups, sizes, strict=True))       # in the order of their first
        return [f"{counted(count, 'group')} of {counted(size, 'layer') if size else 'layers'}: {group.words}"
                for (group, size), count in sorts.items()]


class GivenGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of layers as an experiment gives it, [[engine.kv_cache_groups]]."""

    kind: Annotated[Kind, Meta(description="kind of attention")]
    block_size: Annotated[Annotated[int, Meta(ge=1, le=2**20)] | None, Meta(description=(
        "tokens in its KV blocks; default: engine.block_size"))] = None
    window: Annotated[int, Meta(ge=0, le=2**31 - 1, extra={"unit": "tokens"}, description=(
        "window of sliding_attention and chunked_attention; 0: there is none"))] = 0
    checkpoint: Annotated[int, Meta(ge=0, le=2**20, extra={"unit": "tokens"}, description=(
        "of linear_attention: a chunk of a prompt also writes the state where a block ends inside of it, a multiple of "
        "this number behind the beginning of the chunk; Mamba-2: 1, Gated DeltaNet by FlashInfer in vLLM 0.33: "
        "block_size; 0: it writes none"))] = 0

    def __post_init__(self):
        if self.checkpoint and self.kind != "linear_attention":
            raise ValueError(f"checkpoint = {self.checkpoint}: {self.kind} has no states")
        is_local = self.kind in ("sliding_attention", "chunked_attention")
        if is_local != (self.window > 0):
            raise ValueError(f"window = {self.window}: {self.kind} has {'one' if is_local else 'none'}")


class GroupRules(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's settings of groups.

    enable_prefix_caching : states of linear attention are kept where blocks end.
    writes_delta_states : FlashInfer's kernel of Gated DeltaNet writes states inside chunks, as Mamba-2's always does.
    is_disabled : all layers share one block table where they can (disable_hybrid_kv_cache_manager).
    retention_interval, prefix_match_unit : see LayerGroups.
    given : groups that replace the model's.
    num_drafts : tokens drafted a step, each with a state of its own.
    marked : layers of a drafter by which the engine knows their groups: all, the last one, or none.
    """

    enable_prefix_caching: bool = True
    writes_delta_states: bool = False
    is_disabled: bool = False
    retention_interval: int | None = 0
    prefix_match_unit: int | None = None
    given: tuple[GivenGroup, ...] = ()
    num_drafts: int = 0
    marked: Literal["all", "last", "none"] = "none"

    def groups_given(self, block_size: int, max_model_len: int, context_ways: int = 1) -> LayerGroups:
        """Return the groups that are given; the arguments are the engine's.

        context_ways : ranks that share the KV of a sequence; a block of full attention holds the tokens of all.
        """
        def group(given):
            is_state = given.kind == "linear_attention"
            size = (given.block_size or block_size) * (context_ways if given.kind == "full_attention" else 1)
            return LayerGroup(kind=given.kind, window=given.window, aligned=is_state and self.enable_prefix_caching,
                              checkpoint=given.checkpoint if self.enable_prefix_caching else 0,
                              drafts=self.num_drafts if is_state else 0,
                              block_size=max_model_len if is_state and not self.enable_prefix_caching else size)

        return self.layers(tuple(map(group, self.given)), block_size, context_ways)

    def layers(self, groups: tuple[LayerGroup, ...], block_size: int, context_ways: int) -> LayerGroups:
        """Return these groups under these rules; `context_ways` as above."""
        return LayerGroups(groups=groups, retention_interval=self.retention_interval,
                           prefix_match_unit=self.prefix_match_unit, context_ways=context_ways,
                           chunk_alignment=block_size if any(each.aligned for each in groups) else 0)
