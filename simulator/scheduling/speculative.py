"""Keys of an experiment about speculative decoding, for any scheduler."""
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from simulator.domain import measured_acceptance
from simulator.scheduling.acceptance_table import AcceptanceTable
from simulator.scheduling.drafters import (
    IN_ONE_PASS,
    LOOK_UPS,
    MAY_BE_PARALLEL,
    OF_THE_MODEL,
    WITHOUT_SLOTS,
    Method,
    acceptance_of,
    notes_of,
)

Label = Literal["slo_class", "tenant", "session", "model", "adapter", "grammar"]
Time = Annotated[float, Meta(ge=0, le=1e12)]
DRAFTER_KEYS = ("drafter_share", "drafter_forward_us", "drafter_per_sequence_us")
MODEL_KEYS = ("model", "config", "draft_tensor_parallel_size")
NO_ONE_PASS = "no measured acceptance of drafts from one pass is known here"
AcceptanceCycle = Annotated[tuple[Annotated[int, Meta(ge=0, le=1024)], ...], Meta(min_length=1)]


class TextAcceptance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Acceptance of drafts of some requests, [[engine.speculative.by_text]]."""

    label: Annotated[Label, Meta(description="column of the workload")]
    name: Annotated[str, Meta(min_length=1, description="value of the requests in that column")]
    acceptance: Annotated[AcceptanceTable, Meta(description="acceptance of their drafts")]


class DraftKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of drafts that schedulers share.

    Each scheduler has a subclass, with `num_tokens`, the most drafts that a step accepts.

    drafts_first : drafts are made in front of a verification; else behind a batch, for the next one.
    """

    drafts_first: ClassVar[bool] = False

    method: Annotated[Method | None, Meta(description=(
        "method of drafting, which takes time and sets defaults of acceptance and num_lookahead_tokens; absent: drafts "
        "cost nothing"))] = None
    model: Annotated[str | None, Meta(extra={"facts": "model"}, description=(
        "a draft model, models/<name>.toml, on the accelerators of the engine: its weights and KV are in the memory "
        "plan, and its forward passes are priced like the engine's, unless drafter_share is given"))] = None
    config: Annotated[str | None, Meta(extra={"path": True}, description=(
        "a Hugging Face config.json, instead of a model"))] = None
    by_text: Annotated[tuple[TextAcceptance, ...], Meta(description=(
        "acceptance of requests with a label; the first entry that matches a request is used"))] = ()
    acceptance: Annotated[AcceptanceCycle | AcceptanceTable | None, Meta(description=(
        "accepted drafts per verify step, cycled per request; or a table that they are drawn from; default: the "
        "measured acceptance of the method, without a method none"))] = None
    drafter_share: Annotated[Annotated[float, Meta(ge=0, le=10)] | None, Meta(description=(
        "time of a drafter's forward pass as a share of the model's for the same tokens; default: for EAGLE and MTP by "
        "the weights of a layer and the head, but 0 beside drafter_forward_us"))] = None
    drafter_forward_us: Annotated[Time | None, Meta(description=(
        "time added to each forward pass of the drafter, one per draft, or one where one pass makes them "
        "all; default: for Medusa the time of reading the weights of a head"))] = None
    drafter_per_sequence_us: Annotated[Time | None, Meta(description=(
        "host time per sequence of a batch; required for n-grams and suffixes"))] = None

    def _settle_acceptance(self, why_unknown: str) -> None:
        """Set the default of acceptance, and check given values.

        why_unknown : why no measurement holds; "": the one of the method does.
        """
        if self.acceptance is None:
            acceptance = acceptance_of(self.method, self.num_tokens) if self.method is not None else (0,)
            if acceptance is None or why_unknown:
                why = why_unknown or (
                    f"drafts by {self.method} are accepted as often as texts repeat" if self.method in LOOK_UPS
                    else NO_ONE_PASS)
                raise ValueError(f"acceptance: missing; expected a cycle or a table, since {why}")
            msgspec.structs.force_setattr(self, "acceptance", acceptance)
        fault = _fault(self.acceptance, self.num_tokens) or self._measured_fault(self.acceptance)
        if fault:
            raise ValueError(f"acceptance: {self._in_own_words(fault)}")
        if fault := self._text_fault():
            raise ValueError(f"by_text: {self._in_own_words(fault)}")

    def _in_own_words(self, fault: str) -> str:
        """Return a fault with the key that limits the accepted drafts."""
        return fault

    def _measured_fault(self, table: AcceptanceCycle | AcceptanceTable) -> str:
        """Return the fault of a measurement of another method, or ""."""
        name = getattr(table, "measured", None)
        if name is None or self.method in (None, found := measured_acceptance.method_of(name)):
            return ""
        return f'measured: {name} is of method "{found}", found method = "{self.method}"'

    def _text_fault(self) -> str:
        faults = (f"{text.name}: {fault}" for text in self.by_text if (
            fault := text.acceptance.fault(self.num_tokens) or self._measured_fault(text.acceptance)))
        named = [(text.label, text.name) for text in self.by_text]
        if twice := next((each for each in named if named.count(each) > 1), None):
            return f"{twice[0]} {twice[1]}: expected once, found {named.count(twice)} times"
        if named and self.weights is None and len(set(self.acceptance)) > 1:
            return "expected none where acceptance is a cycle, or acceptance as a table"
        return next(faults, "")

    def _price_fault(self) -> str:
        method, given = self.method, [key for key in DRAFTER_KEYS if getattr(self, key) is not None]
        if method is None:
            return f"{given[0]}: expected none without method" if given else ""
        if method in LOOK_UPS:
            if passes := [key for key in given if key != "drafter_per_sequence_us"]:
                return f"{passes[0]}: expected none, drafts by {method} are looked up without forward passes"
            return "" if given else (
                "drafter_per_sequence_us: missing; expected a number, since nothing says how long a look-up takes")
        if method == "medusa":
            return "drafter_share: expected none, Medusa's heads make no pass over the batch" * (
                "drafter_share" in given)
        if method not in OF_THE_MODEL and not self.has_price and not self.names_model:
            model = "" if method in IN_ONE_PASS else ", or model"
            return f"drafter_share: missing; expected a number, or drafter_forward_us{model}: what a drafter takes"
        return ""

    def _model_fault(self) -> str:
        given = [key for key in MODEL_KEYS if getattr(self, key) is not None]
        if given and self.method != "draft_model":
            return f'{given[0]}: expected none, or method = "draft_model"; found method = {self.method or "none"}'
        if self.model is not None and self.config is not None:
            return "config: expected none beside model"
        return "draft_tensor_parallel_size: expected none without model" if given and not self.names_model else ""

    @property
    def num_passes(self) -> int:
        """Forward passes of the drafter for the drafts of a step."""
        return self.num_tokens

    @property
    def width(self) -> int:
        """Tokens of a sequence in a forward pass of the drafter behind the first one."""
        return 1

    @property
    def names_model(self) -> bool:
        """Return whether the draft model is given by its facts."""
        return self.model is not None or self.config is not None

    @property
    def has_price(self) -> bool:
        """Return whether the time of a forward pass of the drafter is given."""
        return self.drafter_share is not None or self.drafter_forward_us is not None

    @property
    def notes(self) -> list[str]:
        """Notes beside the results for each acceptance that is a published measurement."""
        named = [table.measured for table in self.tables if table.measured is not None]
        notes = [measured_acceptance.note(name, self.num_tokens) for name in dict.fromkeys(named)]
        if self.method == "suffix":
            notes.append(f"speculative: each step verifies {self.num_tokens} drafts: suffix decoding makes fewer where "
                         "the text so far has no such continuation, and lengths of requests do not say where")
        elif self.method is not None and self.acceptance == acceptance_of(self.method, self.num_tokens):
            notes += notes_of(self.method, self.num_tokens)
        return notes

    @property
    def weights(self) -> tuple[float, ...] | None:
        """Weight of 0, 1, 2, ... accepted drafts; None: acceptance is a cycle."""
        return self.acceptance.weights(self.num_tokens) if isinstance(self.acceptance, AcceptanceTable) else None

    @property
    def tables(self) -> tuple[AcceptanceTable, ...]:
        """Acceptance of all requests that match no entry of `by_text`, then of each entry."""
        others = self.acceptance
        if not isinstance(others, AcceptanceTable):
            others = AcceptanceTable(distribution=(0.0,) * others[0] + (1.0,))
        return others, *(text.acceptance for text in self.by_text)

    @property
    def differs_by_request(self) -> bool:
        """Return whether requests differ in more than the draws of their steps."""
        return bool(self.by_text) or (self.weights is not None and self.acceptance.length_std > 0)


class SpeculativeParameters(DraftKeys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Speculative decoding of vLLM, [engine.speculative]."""

    num_tokens: Annotated[int, Meta(ge=1, le=1024, description="drafts per step")]
    draft_tensor_parallel_size: Annotated[Annotated[int, Meta(ge=1, le=2**20)] | None, Meta(extra={
        "unit": "accelerators"}, description=(
        "ranks of the draft model: 1, or topology.tensor_parallel; default: the latter"))] = None
    parallel_drafting: Annotated[bool, Meta(description=(
        "EAGLE, EAGLE-3 and draft models: all drafts come from one forward pass (P-EAGLE, PARD), which computes a mask "
        "for each draft but the first; their acceptance must be given. DFlash and DSpark draft so without this key"
        ))] = False
    num_lookahead_tokens: Annotated[Annotated[int, Meta(ge=0, le=1025)] | None, Meta(description=(
        "slots reserved ahead: 0 for n-gram, suffix and Medusa, num_tokens for EAGLE, MTP, DSpark or a draft model, "
        "one more for DFlash; default: by method, without a method 0"))] = None
    disable_lookahead_block_hashes: Annotated[bool, Meta(description=(
        "EAGLE and MTP, from vllm_version 0.33 on: the hash of a block does not cover the token behind it, and the "
        "last block of a hit is computed again"))] = False
    disable_eagle_block_drop: Annotated[bool, Meta(description=(
        "EAGLE and MTP: hits are neither cut nor do hashes cover the token behind a block; what that costs in "
        "acceptance is not known, and not priced"))] = False

    def __post_init__(self):
        if fault := self._model_fault() or self._parallel_fault() or self._price_fault():
            raise ValueError(fault)
        if self.num_lookahead_tokens is None:
            slots = self.num_tokens + (self.method == "dflash") if self.method not in WITHOUT_SLOTS else 0
            msgspec.structs.force_setattr(self, "num_lookahead_tokens", slots)
        self._settle_acceptance(NO_ONE_PASS if self.method is not None and self.parallel_drafting else "")

    def _parallel_fault(self) -> str:
        if not self.parallel_drafting or self.method in MAY_BE_PARALLEL:
            return ""
        return (f"parallel_drafting: expected false, or one of {', '.join(MAY_BE_PARALLEL)} as method; found "
                f"method = {self.method or 'none'}")


def _fault(acceptance: tuple | AcceptanceTable, num_tokens: int) -> str:
    if isinstance(acceptance, AcceptanceTable):
        return acceptance.fault(num_tokens)
    if max(acceptance) <= num_tokens:
        return ""
    return f"no more than num_tokens = {num_tokens} drafts can be accepted, found {max(acceptance)}"
