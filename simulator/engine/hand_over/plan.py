"""Settings of disaggregated prefill and decode, as `HandOver` uses them."""
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

WAYS = ("out", "into")

# The replica that gets a request first: the prefill replica, and the decode replica when prefill is done; both; or the
# decode replica, and the prefill replica when the former has room.
ORDERS = ("source", "both", "destination")

# Room at a decode replica: its scheduler allocates blocks for a waiting request, and the prefill replica keeps its
# own until they are read; blocks are allocated when the prompt has been computed, or the request is dropped; or the
# request arrives after its KV. With the last two the prefill replica keeps nothing.
PLACES = ("asked", "reserved", "afterwards")
GRANULARITIES = ("prompt", "chunk", "layer")


class Port(msgspec.Struct, frozen=True):
    """Links of the replicas of a pool; rates are per direction.

    outer_bytes_per_s : of all network cards of a replica that transfers may use.
    inner_bytes_per_s : between replicas of one scale-up domain; 0: outer_bytes_per_s.
    replicas_per_domain : number of replicas that share a scale-up domain.
    shares_node : the network cards belong to the node, and its replicas share them.
    """

    outer_bytes_per_s: float
    inner_bytes_per_s: float = 0.0
    replicas_per_domain: int = 1
    shares_node: bool = False


class Pair(msgspec.Struct, frozen=True):
    """Transfer sizes, and use of network cards, from one pool to another.

    token_bytes : on the wire for each token, replicated heads included.
    request_bytes : added for each request.
    block_bytes : in place of token_bytes, of a block of each group of layers, if groups have block tables of their own.
    source_frac, destination_frac : share of the network cards of either side that take part.
    layer_frac : share of a token's bytes that belongs to the last layer.
    """

    token_bytes: float
    request_bytes: float = 0.0
    block_bytes: tuple[float, ...] = ()
    source_frac: float = 1.0
    destination_frac: float = 1.0
    layer_frac: float = 0.0


class HandOverPlan(msgspec.Struct, frozen=True):
    """Routing of the two legs, protocol and timing of KV transfer.

    ports : of each pool.
    pairs : {(prefill pool, decode pool): Pair} of all pools with transfers.
    prefill_front, decode_front : engine.plan.GatewayPlan, for the choice of replicas for either leg.
    decider, decider_parameters : a routing.disaggregation Decider subclass and its `Parameters`; None: all requests are
        split.
    either_leg : any replica may serve either leg, and the prefill router chooses for both.
    decode_first : the decode replica is chosen when a request arrives, else when its prompt has been computed; a
        replica of both roles might then be chosen for both legs, and compute the prompt again.
    contention : one of transport.CONTENTIONS.
    base_ns : of each transfer, before its bytes flow.
    handshake_ns : before the first transfer between two replicas.
    hop_ns : from the end of a prefill to the routing of the decode leg.
    notice_ns : from the end of a transfer until its prefill replica is notified.
    lease_ns : time for which blocks of a prompt stay without heartbeats of their decode replica.
    heartbeat_ns : interval at which the decode replica renews a lease; 0: leases are not renewed.
    extension_ns : least remaining time of a lease after each renewal.
    recomputes : a decode replica recomputes KV that it could not read; else the request ends.
    takes_whole_prompt : blocks that the decode replica has already are sent, too.
    order : the replica that gets a request first, one of ORDERS.
    place : allocation of room at the decode replica, one of PLACES.
    granularity : unit of transfer, one of GRANULARITIES.
    has_first_token : the prefill replica's token is sent along, and the decode replica continues after it.
    sends_token : that token is moved like a token of the prompt.
    pushes : the prefill replica sends the bytes, after the decode replica's notice of the destination.
    unawaited : a request enters the queue of its decode replica when its prompt is done, and the replica wakes for it
        when its KV has arrived; if the replica forms a batch before that, it admits the request anyway. With place
        "afterwards".
    resolution_ns : durations of transfers are rounded up to multiples of it, unless they share links fairly.
    reserved_tokens : see KVTier.
    notices_at_start : an iteration notices KV that arrived by its start, and reports it at its end; else KV that
        arrived by its end.
    """

    ports: tuple[Port, ...]
    pairs: dict[tuple[int, int], Pair]
    prefill_front: Any
    decode_front: Any
    decider: type | None = None
    decider_parameters: Any = None
    decode_first: bool = False
    either_leg: bool = False
    contention: str = "fair"
    base_ns: int = 0
    handshake_ns: int = 0
    hop_ns: int = 0
    notice_ns: int = 0
    lease_ns: int = 30 * 10**9
    heartbeat_ns: int = 5 * 10**9
    extension_ns: int = 20 * 10**9
    recomputes: bool = False
    takes_whole_prompt: bool = False
    notices_at_start: bool = False
    order: str = "source"
    place: str = "asked"
    granularity: str = "prompt"
    has_first_token: bool = False
    sends_token: bool = False
    pushes: bool = False
    unawaited: bool = False
    resolution_ns: int = 1
    reserved_tokens: int = -1


class Ways(NamedTuple):
    """Behaviour of a replica in KV transfers.

    polls : a step checks for arrived KV when it is launched, and reports it when it ends.
    reads : it may read KV of other replicas.
    names_blocks : the assignment of blocks to sequences matters, even of blocks without a hash.
    needs_token : it computes no prompts: with a full prefix hit it still waits for the token that follows the prompt.
    """

    polls: bool
    reads: bool
    names_blocks: bool = True
    needs_token: bool = False


class Network:
    """The links of the replicas of a cluster, as `Transport` takes them.

    capacities : float64 (links,), bytes per ns.
    ends : int32 (replicas, 6): the links by which KV leaves a replica and enters it; the links for transfers within its
        scale-up domain, -1: those beyond; that domain; and the pool.
    narrow : int32 (replicas, pools): a link of only the network cards that take part in transfers with a pool;
        -1: all do.

    Parameters
    ----------
    entries : of build.PoolEntry, all places for replicas in order.
    plan : HandOverPlan
    """

    def __init__(self, entries: Sequence, plan: HandOverPlan):
        self._capacities, self._known = [], {}
        num_pools = len(plan.ports)
        self.ends = np.full((len(entries), 6), -1, np.int32)
        self.narrow = np.full((len(entries), num_pools), -1, np.int32)
        for entry in entries:
            port = plan.ports[entry.pool]
            owner = ("node", entry.node) if port.shares_node else ("replica", entry.replica)
            self.ends[entry.replica, :2] = [self._link(owner, way, port.outer_bytes_per_s) for way in WAYS]
            if port.inner_bytes_per_s > 0:
                self.ends[entry.replica, 2:4] = [self._link(("inner", entry.replica), way, port.inner_bytes_per_s)
                                                 for way in WAYS]
            domain = entry.pool, entry.place // port.replicas_per_domain
            self.ends[entry.replica, 4:] = self._known.setdefault(("domain", domain), len(self._known)), entry.pool
            for (source, destination), pair in plan.pairs.items():
                for own, other, frac, way in ((source, destination, pair.source_frac, "out"),
                                              (destination, source, pair.destination_frac, "into")):
                    if own == entry.pool and frac < 1.0:
                        rate = port.outer_bytes_per_s * frac
                        self.narrow[entry.replica, other] = self._link((*owner, frac), way, rate)
        self.capacities = np.array(self._capacities)

    def _link(self, owner: tuple, way: str, bytes_per_s: float) -> int:
        key = (*owner, way)
        if key not in self._known:
            self._known[key] = len(self._capacities)
            self._capacities.append(bytes_per_s / 1e9)
        return self._known[key]
