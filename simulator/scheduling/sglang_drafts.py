"""Drafts under SGLang: chains, trees and n-grams, and the KV that a decode reserves for them.

Source: sglang 0.5.23, sglang/srt/mem_cache/allocation_sizing.py (get_alloc_len_per_decode,
get_alloc_reserve_per_decode), sglang/srt/arg_groups/speculative_hook.py (_handle_eagle_family, _handle_ngram,
_auto_choose_speculative_params), sglang/srt/speculative/spec_info.py (is_eagle, has_draft_kv, supports_mixed_chunk).
"""
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from simulator.scheduling.drafters import OF_THE_MODEL
from simulator.scheduling.speculative import DraftKeys

BREADTH, NGRAM_DRAFTS = 10, 12      # --speculative-ngram-max-bfs-breadth; drafts by n-gram, unless given
SHAPE = ("num_steps", "eagle_topk", "num_draft_tokens")
CHAIN, TREE = (3, 1, 4), (5, 4, 8)  # of a server that is given none
WITH_TREES = ("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM")
MIXING = OF_THE_MODEL               # methods with decodes in batches with prompts
DRAFTED_RUNNING = 48                # max_running_requests beside drafts, unless given
SglangMethod = Literal["draft_model", "eagle", "eagle3", "mtp", "ngram"]
Count = Annotated[int, Meta(ge=1, le=1024)]


class SglangDrafts(DraftKeys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Speculative decoding of SGLang, [engine.speculative].

    A drafter makes `num_steps` passes; with `eagle_topk` = 1 they give a chain of drafts, else a tree, of which
    `num_draft_tokens` tokens are verified at once. Acceptance counts the drafts on the accepted path.
    """

    draft_tensor_parallel_size: ClassVar[None] = None
    parallel_drafting: ClassVar[bool] = False
    drafts_first: ClassVar[bool] = True

    method: Annotated[SglangMethod, Meta(description=(
        "--speculative-algorithm: eagle, eagle3, mtp (NEXTN: the model's own layer), draft_model (STANDALONE), "
        "ngram; sets defaults of acceptance and of the drafter's time"))]
    num_steps: Annotated[Count | None, Meta(description=(
        "drafts on a path, --speculative-num-steps; default: 5 for Llama and Grok, else 3; n-grams: num_draft_tokens "
        "over eagle_topk"))] = None
    eagle_topk: Annotated[Count | None, Meta(extra={"unit": "drafts"}, description=(
        "drafts beside each other at a step, --speculative-eagle-topk; 1: a chain; default: 4 for Llama and Grok "
        "where num_steps is absent, else 1; n-grams: 10"))] = None
    num_draft_tokens: Annotated[Annotated[int, Meta(ge=2, le=1025)] | None, Meta(extra={"unit": "tokens"}, description=(
        "tokens of a request that the model verifies at once, the last sampled one and drafts, "
        "--speculative-num-draft-tokens; default: num_steps + 1 for a chain, 8 for the default tree, 12 for "
        "n-grams"))] = None

    def __post_init__(self):
        if fault := self._model_fault() or self._price_fault():
            raise ValueError(fault)
        if self.method == "ngram":
            self._complete(eagle_topk=BREADTH, num_draft_tokens=NGRAM_DRAFTS)
            self._complete(num_steps=max(self.num_draft_tokens // self.eagle_topk, 1))
        elif self.num_steps is not None:
            self._complete(eagle_topk=1)
            if self.eagle_topk == 1:
                self._complete(num_draft_tokens=self.num_steps + 1)
        if fault := self._shape_fault():
            raise ValueError(fault)
        if self.is_complete:
            self._settle_acceptance("" if self.eagle_topk == 1 else (
                "no measured acceptance of drafts in a tree is known here"))

    def _complete(self, **values: int) -> None:
        for key, value in values.items():
            if getattr(self, key) is None:
                msgspec.structs.force_setattr(self, key, value)

    def _shape_fault(self) -> str:
        """Return the fault of the numbers, or ""."""
        steps, width, verified = self.num_steps, self.eagle_topk, self.num_draft_tokens
        if steps is None:
            return next((f"{key}: expected none without num_steps" for key in ("eagle_topk", "num_draft_tokens")
                         if getattr(self, key) is not None), "")
        if self.method == "ngram":
            return ""
        if verified is None:
            return f"num_draft_tokens: missing; expected a number, since eagle_topk = {width} makes a tree of drafts"
        if width == 1 and verified != steps + 1:
            return (f"num_draft_tokens: expected num_steps + 1 = {steps + 1} for a chain (eagle_topk = 1), found "
                    f"{verified}")
        most = 1 + width + (steps - 1) * width**2
        return (f"num_draft_tokens: expected at most {most}, the tokens of a tree of {steps} steps with eagle_topk = "
                f"{width}, found {verified}" if verified > most else "")

    def _in_own_words(self, fault: str) -> str:
        is_short = self.method == "ngram" or self.num_draft_tokens <= self.num_steps
        return fault.replace("num_tokens", "num_draft_tokens - 1" if is_short else "num_steps")

    @property
    def is_complete(self) -> bool:
        """Return whether all numbers are known; else the model decides."""
        return self.num_draft_tokens is not None

    @property
    def num_tokens(self) -> int:
        """Most drafts that a verification accepts: those on a path of the tree."""
        longest = self.num_draft_tokens - 1
        return longest if self.method == "ngram" else min(self.num_steps, longest)

    @property
    def num_passes(self) -> int:
        """See DraftKeys."""
        return self.num_steps

    @property
    def width(self) -> int:
        """See DraftKeys."""
        return self.eagle_topk

    @property
    def num_lookahead_tokens(self) -> int:
        """Tokens that a decode reserves, at least, beyond the drafts that it may accept."""
        return self.decode_tokens(1) - self.num_tokens

    @property
    def reads_next(self) -> bool:
        """Return whether the drafter reads the next token, too, for KV of a token."""
        return self.method in OF_THE_MODEL

    def decode_tokens(self, page: int) -> int:
        """Return the tokens that a request may write in a decode.

        A decode reserves twice as many, see `Sglang`. With pages and a tree, each branch begins with a copy of the page
        in which the text ends.
        """
        if page > 1 and self.eagle_topk > 1 and self.method != "ngram":
            pages = -(-(page - 1 + self.num_steps) // page)
            return max(pages * page * self.eagle_topk, self.num_draft_tokens)
        return max(self.num_steps * self.eagle_topk, self.num_draft_tokens)


def completed_drafts(given: SglangDrafts | None, architecture: str = "") -> SglangDrafts | None:
    """Return drafts with the numbers that a server chooses for a model.

    architecture : of the model; "": it is not known.

    Raises
    ------
    ValueError
        Acceptance is missing, or does not go with these numbers.
    """
    if given is None or given.is_complete:
        return given
    is_tree = architecture in WITH_TREES and given.method != "draft_model"
    return msgspec.structs.replace(given, **dict(zip(SHAPE, TREE if is_tree else CHAIN, strict=True)))
