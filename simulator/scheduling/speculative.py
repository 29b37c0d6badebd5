"""What an experiment says of speculative decoding, whichever scheduler does it."""
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.scheduling.acceptance_table import AcceptanceTable

AcceptanceCycle = Annotated[tuple[Annotated[int, Meta(ge=0, le=1024)], ...], Meta(min_length=1)]


class SpeculativeParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Speculative decoding, [engine.speculative]."""

    num_tokens: Annotated[int, Meta(ge=1, le=1024, description="drafts per step")]
    num_lookahead_tokens: Annotated[int, Meta(ge=0, le=1024, description=(
        "slots reserved ahead: 0 for n-gram, num_tokens for EAGLE, MTP or a draft model"))] = 0
    acceptance: Annotated[AcceptanceCycle | AcceptanceTable, Meta(description=(
        "accepted drafts per verify step, cycled per request; or a table of what they are drawn from"))] = (0,)

    def __post_init__(self):
        if fault := _fault(self.acceptance, self.num_tokens):
            raise ValueError(f"acceptance: {fault}")

    @property
    def weights(self) -> tuple[float, ...] | None:
        """Weight of 0, 1, 2, ... accepted drafts; None: acceptance is a cycle."""
        return self.acceptance.weights(self.num_tokens) if isinstance(self.acceptance, AcceptanceTable) else None


def _fault(acceptance: tuple | AcceptanceTable, num_tokens: int) -> str:
    if isinstance(acceptance, AcceptanceTable):
        return acceptance.fault(num_tokens)
    if max(acceptance) <= num_tokens:
        return ""
    return f"no more than num_tokens = {num_tokens} drafts can be accepted, found {max(acceptance)}"
