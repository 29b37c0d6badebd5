"""Schema of [kv_transfer]: KV transfer from prefill to decode replicas."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.domain.protocols import HABITS, Habits

MAX_US = 1e12
Microseconds = Annotated[float, Meta(ge=0, le=MAX_US)]
Rate = Annotated[float, Meta(gt=0, le=1e9)]

Protocol = Literal["nixl", "nixl_push", "mooncake", "sglang", "blis", "simai"]
FirstToken = Literal["recompute", "prefill"]
Granularity = Literal["prompt", "chunk", "layer"]
Contention = Literal["fair", "none", "at_start", "fifo"]


class KvTransfer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """KV transfer from prefill to decode replicas, [kv_transfer].

    A transfer takes base_us, then its bytes over the rate of the links that it shares with others. It moves the tokens
    that the decode replica lacks, with the KV heads that tensor parallelism repeats there.
    """

    protocol: Annotated[Protocol, Meta(description=(
        "order of the two replicas, the side that moves bytes, and the source of the first token. nixl: the prefill "
        "replica first, and the decode replica reads; nixl_push: the prefill replica first, and it writes once it "
        "knows the destination; mooncake: both at once, and the prefill replica writes when it has computed and knows "
        "the destination; sglang: the decode replica first, and a prompt is computed when there is room for it there; "
        "blis: the prefill replica first, and room is taken when it is done; simai: as blis, and the decode replica "
        "sees a request when its KV has arrived"))] = "nixl"
    first_token: Annotated[FirstToken | None, Meta(description=(
        "recompute: the decode replica samples it, computing the last token of the prompt again; prefill: the prefill "
        "replica's token is sent along; default: that of the protocol"))] = None
    granularity: Annotated[Granularity | None, Meta(description=(
        "unit that moves as soon as it is computed: the prompt, a chunk of it, a layer; chunk and layer only where the "
        "decode replica may have room before the prompt is computed, mooncake and sglang; default: chunk with sglang, "
        "else prompt"))] = None
    volume: Annotated[Literal["missing", "full_prompt"] | None, Meta(description=(
        "tokens that move: missing: those not in the decode replica's prefix cache; full_prompt: all; default: "
        "missing, but full_prompt with simai"))] = None
    base_us: Annotated[Microseconds | None, Meta(description=(
        "latency of each transfer before its bytes flow; Mooncake's transfer engine took 380 us on 8 RoCE ports, a fit "
        "to its published table of transfer times; default: 400, with blis 50, with simai 0"))] = None
    bandwidth_gb_per_s: Annotated[Rate | None, Meta(description=(
        "rate of a replica's links together, in each direction, as transfers see it; default: of its accelerators' "
        "network cards, times efficiency"))] = None
    efficiency: Annotated[float, Meta(gt=0, le=1, description=(
        "share of the network cards' rate that transfers get; Mooncake's tables: 0.73 and 0.86"))] = 0.75
    nics_per_transfer: Annotated[Literal["rank", "all"], Meta(description=(
        "cards that a transfer may use: rank: those of the ranks that hold the KV; all: all of the node, which its "
        "replicas then share"))] = "rank"
    contention: Annotated[Contention | None, Meta(description=(
        "how concurrent transfers share links. fair: max-min fairly; none: they do not slow each other; at_start: each "
        "keeps the rate divided by the number under way when it began; fifo: one after the other into a replica; "
        "default: fair, with blis at_start, with simai none"))] = None
    lease_s: Annotated[Annotated[float, Meta(ge=0.001, le=1e9)] | None, Meta(description=(
        "a prefill replica keeps the blocks of a prompt this long after the end of the prefill, then frees them; "
        "vLLM's kv_lease_duration. nixl; default: 30"))] = None
    heartbeats: Annotated[bool | None, Meta(description=(
        "a decode replica that has the request renews the lease each lease_s // 6 seconds, to at least two thirds of "
        "lease_s, until the KV has arrived or the replica is lost. nixl; default: true"))] = None
    failure_policy: Annotated[Literal["fail", "recompute"] | None, Meta(description=(
        "fate of a request whose KV cannot be read, because the lease has run out or the prefill replica is lost. "
        "fail: it is dropped, for kv_load_failed; recompute: the decode replica computes its prompt. nixl; default: "
        "fail"))] = None
    handshake_ms: Annotated[float, Meta(ge=0, le=1e9, description=(
        "handshake before the first transfer between two replicas"))] = 0.0
    answer_hop_us: Annotated[Microseconds | None, Meta(description=(
        "from the end of a prefill to the routing of the decode; nixl and nixl_push; default: output_token_us of "
        "[latency.host] of the prefill pool, whose API server passes the answer on"))] = None
    notice_us: Annotated[Microseconds, Meta(description=(
        "from the end of a transfer until the replica that did not move the bytes may know of it; where the prefill "
        "replica moves them, all but nixl, also from the reservation of room until the prefill replica knows of "
        "it"))] = 0.0
    noticed_at: Annotated[Literal["end", "start"] | None, Meta(description=(
        "when a replica looks for arrived KV: end: at the end of an iteration; start: at the start of an iteration, "
        "and it counts at its end, as where the forward pass is launched and not waited for. An idle replica notices "
        "at once. Default: start with async_scheduling or [kv_tiers], which allow only that, else end"))] = None
    num_reserved_decode_tokens: Annotated[Annotated[int, Meta(ge=0, le=2**31 - 1)] | None, Meta(description=(
        "sglang: tokens that a decode replica leaves free for each sequence that runs or waits for KV; default: "
        "512"))] = None
    upstream_compat: Annotated[bool, Meta(description=(
        "simai: do as vidur-alibabacloud where it departs from every engine: a decode replica that forms a batch for "
        "another reason takes in requests whose KV is still on its way, and topology.pd_node_ratio is rounded "
        "up"))] = False
    kv_bytes_per_token: Annotated[Annotated[float, Meta(gt=0, le=1e12)] | None, Meta(description=(
        "bytes of a token on the wire; default: the model's"))] = None

    @property
    def habits(self) -> Habits:
        """Properties of the protocol."""
        return HABITS[self.protocol]

    def chosen(self, key: str, kind: str):
        """Return the value of a key, else the first one that the protocol allows.

        kind : the field of its habits that lists the allowed values.
        """
        given = getattr(self, key)
        return getattr(self.habits, kind)[0] if given is None else given
