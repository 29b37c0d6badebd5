"""Schema of [workload.sessions]: order and history of the turns of a session."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class Histories(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """History of earlier turns in a prompt, where prompts are generated, not recorded."""

    history: Annotated[Literal["actual", "declared"] | None, Meta(description=(
        "length of an earlier output in the prompt: actual: the tokens that were generated, up to its end, max_tokens "
        "or max_model_len; declared: max_tokens; absent: actual"))] = None
    history_keeps_reasoning: Annotated[bool | None, Meta(description=(
        "the prompt contains earlier outputs with their reasoning_tokens; without them the text differs from there on, "
        "so that cached KV is of use up to the end of the earlier prompt; absent: without"))] = None

    def given_keys(self) -> list[str]:
        """Return the keys that are given."""
        return [key for key in ("history", "history_keeps_reasoning") if getattr(self, key) is not None]


class TraceSessions(Histories, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sessions of a trace with rounds in its rows, [workload.sessions]."""

    gap: Annotated[Literal["ignore", "recorded", "absolute"], Meta(description=(
        "arrival of a later round. ignore: think_time_s after the end of the round before; recorded: after that end by "
        "the difference of their recorded arrivals; absolute: after think_time_s, but not before its own recorded "
        "arrival"))] = "ignore"
    on_reject: Annotated[Literal["continue", "end"], Meta(description=(
        "requests that wait for a refused request: continue: they arrive as if it had ended then; end: they are not "
        "sent"))] = "end"
    accumulate: Annotated[bool, Meta(description=(
        "num_prefill_tokens and prompt of a round are only its new part: the whole prompt begins with all earlier text "
        "of its session"))] = False
