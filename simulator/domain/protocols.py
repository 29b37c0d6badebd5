"""Properties of each KV transfer protocol: order of the replicas, room for a request, units that move."""
from typing import NamedTuple

ANY_PIECES = ("prompt", "chunk", "layer")


class Habits(NamedTuple):
    """Properties of a protocol, and the options that it allows.

    Of several possibilities the first is the default.

    order, place : see engine/hand_over/plan.py.
    first_tokens : allowed values of [kv_transfer] first_token: the replica that samples it.
    granularities, volumes : allowed values.
    pushes : the prefill replica moves the bytes, and the decode replica sends it the destination.
    base_us : before the bytes of a transfer flow.
    contention : unless the experiment says otherwise.
    sends_token : the KV of the first token moves like that of a prompt token; else whole blocks move.
    resolution_us : transfer durations are multiples of this; 0: any duration.
    reserved_tokens : that a decode replica leaves free for each sequence; -1: it admits by its scheduler's own rule.
    why_no_tiers : why replicas may have no KV tier of their own; empty: they may.
    """

    order: str = "source"
    place: str = "asked"
    first_tokens: tuple[str, ...] = ("recompute", "prefill")
    granularities: tuple[str, ...] = ("prompt",)
    volumes: tuple[str, ...] = ("missing", "full_prompt")
    pushes: bool = False
    base_us: float = 400.0
    contention: str = "fair"
    sends_token: bool = False
    resolution_us: int = 0
    reserved_tokens: int = -1
    why_no_tiers: str = ""


HABITS = {
    # vLLM 0.32.0, vllm/distributed/kv_transfer/kv_connector/v1/nixl/pull_scheduler.py and push_scheduler.py; the first
    # token sent along is vLLM's pull request 51919
    "nixl": Habits(),
    "nixl_push": Habits(pushes=True),
    # vLLM 0.32.0, .../v1/mooncake/mooncake_connector.py: the decode replica may be ready first, and waits
    "mooncake": Habits(order="both", granularities=ANY_PIECES, pushes=True),
    # SGLang, python/sglang/srt/disaggregation/decode.py and prefill.py, and --num-reserved-decode-tokens
    "sglang": Habits(order="destination", first_tokens=("prefill",), granularities=("chunk", "prompt", "layer"),
                     pushes=True, reserved_tokens=512),
    # inference-sim (BLIS) at f90a1e3a, sim/cluster: blocks of the decode replica are taken when the prompt is computed,
    # or the request is dropped; --pd-transfer-base-latency
    "blis": Habits(place="reserved", first_tokens=("prefill",), base_us=50.0, contention="at_start", resolution_us=1,
                   why_no_tiers="what BLIS's tiers do with blocks that are reserved for a prompt from elsewhere is not "
                                "recorded, and not built"),
    # vidur-alibabacloud (SimAI cef83f9d), vidur/events/batch_end_event.py: the request arrives with its KV; one token
    # more than the prompt moves, on links that are not shared
    "simai": Habits(place="afterwards", first_tokens=("prefill",), volumes=("full_prompt",), base_us=0.0,
                    contention="none", sends_token=True,
                    why_no_tiers="vidur-alibabacloud has no KV beyond the blocks of its replicas"),
}
