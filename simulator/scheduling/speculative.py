"""What an experiment says of speculative decoding, whichever scheduler does it."""
from typing import Annotated

import msgspec
from msgspec import Meta

AcceptanceCycle = Annotated[tuple[Annotated[int, Meta(ge=0, le=1024)], ...], Meta(min_length=1)]


class AcceptanceTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many drafts are accepted, drawn for each verify step from a distribution."""

    distribution: Annotated[tuple[Annotated[float, Meta(ge=0)], ...], Meta(
        min_length=1, description="weight of 0, 1, 2, ... accepted drafts in a verify step")]

    def __post_init__(self):
        if sum(self.distribution) <= 0:
            raise ValueError("distribution: expected a weight above 0, found none")


class SpeculativeParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Speculative decoding, [engine.speculative]."""

    num_tokens: Annotated[int, Meta(ge=1, le=1024, description="drafts per step")]
    num_lookahead_tokens: Annotated[int, Meta(ge=0, le=1024, description=(
        "slots reserved ahead: 0 for n-gram, num_tokens for EAGLE, MTP or a draft model"))] = 0
    acceptance: Annotated[AcceptanceCycle | AcceptanceTable, Meta(description=(
        "accepted drafts per verify step, cycled per request; or {distribution = [weights]}"))] = (0,)

    def __post_init__(self):
        is_table = isinstance(self.acceptance, AcceptanceTable)
        counts = [i for i, weight in enumerate(self.acceptance.distribution) if weight] if is_table else self.acceptance
        if max(counts) > self.num_tokens:
            raise ValueError(f"acceptance: no more than num_tokens = {self.num_tokens} drafts can be accepted, "
                             f"found {max(counts)}")
