"""How the turns of sessions follow each other, as an experiment says it: [workload.sessions]."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class Histories(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands in prompts of earlier turns, where they are made here, not recorded."""

    history: Annotated[Literal["actual", "declared"] | None, Meta(description=(
        "how long an earlier output is in it: as many tokens as were generated, up to its end, max_tokens or "
        "max_model_len; or max_tokens; absent: actual"))] = None
    history_keeps_reasoning: Annotated[bool | None, Meta(description=(
        "an earlier output stands in it with its reasoning_tokens; without them the text differs from there on, so "
        "that cached KV is of use up to the end of the earlier prompt; absent: without"))] = None

    def given_keys(self) -> list[str]:
        """Return which of the two are said."""
        return [key for key in ("history", "history_keeps_reasoning") if getattr(self, key) is not None]


class TraceSessions(Histories, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sessions of a trace whose rows have rounds, [workload.sessions]."""

    gap: Annotated[Literal["ignore", "recorded", "absolute"], Meta(description=(
        "when a later round comes: think_time_s after the end of the one before; as long after it as their recorded "
        "arrivals are apart; or after think_time_s, but not before its own recorded arrival"))] = "ignore"
    on_reject: Annotated[Literal["continue", "end"], Meta(description=(
        "a request that was refused: those that wait for it come as if it had ended then, or are not sent"))] = "end"
    accumulate: Annotated[bool, Meta(description=(
        "num_prefill_tokens and prompt of a round are what it adds: its prompt begins with all that was said before it "
        "in its session"))] = False
