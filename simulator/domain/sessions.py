"""How the turns of sessions follow each other, as an experiment says it: [workload.sessions] of a trace."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class TraceSessions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sessions of a trace whose rows have rounds, [workload.sessions]."""

    gap: Annotated[Literal["ignore", "recorded", "absolute"], Meta(description=(
        "when a later round comes: think_time_s after the end of the one before; as long after it as their recorded "
        "arrivals are apart; or after think_time_s, but not before its own recorded arrival"))] = "ignore"
    on_reject: Annotated[Literal["continue", "end"], Meta(description=(
        "a request that was refused: those that wait for it come as if it had ended then, or are not sent"))] = "end"
