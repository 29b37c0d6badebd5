"""How requests are handed over from prefill to decode replicas: what `HandOver` is told."""
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

WAYS = ("out", "into")

# Who is told of a request first: the prefill replica, and the decode replica when that is done; both; or the decode
# replica, and the prefill replica when that has room.
ORDERS = ("source", "both", "destination")

# How a decode replica makes room: its scheduler gives blocks to a request that asks, and the prefill replica keeps its
# own until they are read; blocks are taken when the prompt has been computed, or the request is dropped; or the
# request comes when its KV has. In the latter two the prefill replica keeps nothing.
PLACES = ("asked", "reserved", "afterwards")
GRANULARITIES = ("prompt", "chunk", "layer")


class Port(msgspec.Struct, frozen=True):
    """How the replicas of a pool are linked; rates are per direction.

    outer_bytes_per_s : of all its network cards that transfers may use.
    inner_bytes_per_s : between replicas of one scale-up domain; 0: as beyond.
    replicas_per_domain : that share a scale-up domain.
    shares_node : the network cards belong to the node, and its replicas share them.
    """

    outer_bytes_per_s: float
    inner_bytes_per_s: float = 0.0
    replicas_per_domain: int = 1
    shares_node: bool = False


class Pair(msgspec.Struct, frozen=True):
    """What a transfer from one pool to another is made of.

    token_bytes : on the wire for each token, replicated heads included.
    request_bytes : besides, for each request.
    block_bytes : instead, of a block of each group of layers, where these have block tables of their own.
    source_frac, destination_frac : share of the network cards of either side that take part.
    layer_frac : of the bytes of a token, those of its last layer.
    """

    token_bytes: float
    request_bytes: float = 0.0
    block_bytes: tuple[float, ...] = ()
    source_frac: float = 1.0
    destination_frac: float = 1.0
    layer_frac: float = 0.0


class HandOverPlan(msgspec.Struct, frozen=True):
    """How requests are handed over.

    ports : of each pool.
    pairs : {(prefill pool, decode pool): Pair} of those that hand over to each other.
    prefill_front, decode_front : engine.plan.GatewayPlan, how replicas for either leg are chosen.
    decider, decider_parameters : a routing.disaggregation Decider subclass and its `Parameters`; None: all requests are
        split.
    either_leg : any replica may do either leg, and the router of the prompts chooses for both.
    decode_first : the decode replica is chosen when a request comes, else when its prompt has been computed; a replica
        of both roles might then hand over to itself, and compute the prompt again.
    contention : one of transport.CONTENTIONS.
    base_ns : of each transfer, before its bytes flow.
    handshake_ns : before the first transfer between two replicas.
    hop_ns : from the end of a prefill to the routing of the decode leg.
    notice_ns : from the end of a transfer until its prefill replica may know.
    lease_ns : blocks of a prompt stay for so long, if their decode replica is not heard of.
    heartbeat_ns : from one renewal of a lease by it to the next; 0: leases are not renewed.
    extension_ns : a lease runs so long at least from each renewal on.
    recomputes : a decode replica computes itself what it could not read; else the request ends.
    takes_whole_prompt : blocks that the decode replica has already are sent, too.
    order : who is told of a request first, one of ORDERS.
    place : how the decode replica makes room, one of PLACES.
    granularity : what moves as one, one of GRANULARITIES.
    brings_token : the prefill replica's token is sent along, and the decode replica begins behind it.
    sends_token : that one is moved like a token of the prompt.
    pushes : the prefill replica moves the bytes, and hears from the decode replica where to.
    unawaited : a request enters the queue of its decode replica when its prompt is done, and the replica wakes for it
        when its KV has come; where it forms a batch before that, it takes the request in all the same. With place
        "afterwards".
    resolution_ns : transfers end in whole ones, rounded up, unless they share links fairly.
    reserved_tokens : see KVTier.
    notices_at_start : an iteration notices what has come by its start, and tells at its end; else what has come by its
        end.
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
    brings_token: bool = False
    sends_token: bool = False
    pushes: bool = False
    unawaited: bool = False
    resolution_ns: int = 1
    reserved_tokens: int = -1


class Ways(NamedTuple):
    """How a replica deals with KV that others compute, or go on with.

    polls : a step looks for what has come when it is launched, and reports it when it ends.
    reads : it may read of others.
    names_blocks : who gets a block matters, also of those without a hash.
    needs_token : it computes no prompts: it waits for the token that follows one even if it has all KV of it.
    """

    polls: bool
    reads: bool
    names_blocks: bool = True
    needs_token: bool = False


class Network:
    """The links of the replicas of a cluster, as `Transport` takes them.

    capacities : float64 (links,), bytes per ns.
    ends : int32 (replicas, 6): the links by which KV leaves a replica and enters it, the same within its scale-up
        domain, -1: as beyond, that domain, and the pool.
    narrow : int32 (replicas, pools): a link of those network cards alone that take part in transfers with a pool; -1:
        all do.

    Parameters
    ----------
    seats : of build.PoolSeat, all places for replicas in order.
    plan : HandOverPlan
    """

    def __init__(self, seats: Sequence, plan: HandOverPlan):
        self._capacities, self._known = [], {}
        num_pools = len(plan.ports)
        self.ends = np.full((len(seats), 6), -1, np.int32)
        self.narrow = np.full((len(seats), num_pools), -1, np.int32)
        for seat in seats:
            port = plan.ports[seat.pool]
            owner = ("node", seat.node) if port.shares_node else ("replica", seat.replica)
            self.ends[seat.replica, :2] = [self._link(owner, way, port.outer_bytes_per_s) for way in WAYS]
            if port.inner_bytes_per_s > 0:
                self.ends[seat.replica, 2:4] = [self._link(("inner", seat.replica), way, port.inner_bytes_per_s)
                                                for way in WAYS]
            domain = seat.pool, seat.place // port.replicas_per_domain
            self.ends[seat.replica, 4:] = self._known.setdefault(("domain", domain), len(self._known)), seat.pool
            for (source, destination), pair in plan.pairs.items():
                for own, other, frac, way in ((source, destination, pair.source_frac, "out"),
                                              (destination, source, pair.destination_frac, "into")):
                    if own == seat.pool and frac < 1.0:
                        rate = port.outer_bytes_per_s * frac
                        self.narrow[seat.replica, other] = self._link((*owner, frac), way, rate)
        self.capacities = np.array(self._capacities)

    def _link(self, owner: tuple, way: str, bytes_per_s: float) -> int:
        key = (*owner, way)
        if key not in self._known:
            self._known[key] = len(self._capacities)
            self._capacities.append(bytes_per_s / 1e9)
        return self._known[key]
