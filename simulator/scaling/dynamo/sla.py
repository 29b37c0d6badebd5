"""Load loop of Dynamo's planner with latencies as its target: one replica more, one less, or none.

One more if every replica misses the bound; one less if all would keep a margin with the load of one more to share. The
latencies of a replica come from a `Profile` in place of Dynamo's regression over iterations.
Source: ai-dynamo 1.6.1 (PyPI), dynamo/planner/core/load_scaling.py, its rules restated.
"""
from typing import NamedTuple

from simulator.scaling.profile import Profile


class Lengths(NamedTuple):
    """Mean lengths of requests, in tokens, and the share of prompts that caches hold."""

    isl: float
    osl: float
    hit_rate: float = 0.0

    @property
    def computed(self) -> float:
        """Prompt tokens that a replica computes."""
        return max(self.isl * (1 - self.hit_rate), 1.0)

    @property
    def context(self) -> float:
        """Tokens of a request that decodes, in the mean."""
        return self.isl + self.osl / 2


class PrefillSla(NamedTuple):
    """Bound on the time to first token.

    own_ms : time to first token without a queue.
    tokens_per_ms : prompt tokens that a replica computes.
    hit_rate : share of queued tokens that it need not compute.
    ttft_ms : the bound; margin : share of the bound, less `own_ms`, that queues may take with one replica less.
    """

    own_ms: float
    tokens_per_ms: float
    hit_rate: float
    ttft_ms: float
    margin: float

    def verdict(self, loads, floor: int, *, may_stay: bool) -> int | None:
        """See `load.Thresholds.verdict`; `loads` are queued prompt tokens."""
        queues_ms = [queued * (1 - self.hit_rate) / self.tokens_per_ms for queued in loads]
        if all(self.own_ms + queue_ms > self.ttft_ms for queue_ms in queues_ms):
            return len(loads) + 1
        room_ms = (self.ttft_ms - self.own_ms) * self.margin
        fits = all(queue_ms * _growth(len(loads)) < room_ms for queue_ms in queues_ms)
        return _one_less(len(loads), floor, fits=fits, may_stay=may_stay)


class DecodeSla(NamedTuple):
    """Bound on the time between two tokens.

    profile, context : of a replica; tokens of a request.
    capacity_tokens : tokens that the KV cache of a replica holds.
    itl_ms : the bound; margin : share of the bound that one replica less must keep.
    """

    profile: Profile
    context: float
    capacity_tokens: int
    itl_ms: float
    margin: float

    def verdict(self, loads, floor: int, *, may_stay: bool) -> int | None:
        """See `load.Thresholds.verdict`; `loads` are KV tokens."""
        if all(self._itl_ms(tokens) > self.itl_ms for tokens in loads):
            return len(loads) + 1
        later = [tokens * _growth(len(loads)) for tokens in loads]
        fits = all(tokens < self.capacity_tokens and self._itl_ms(tokens) < self.itl_ms * self.margin
                   for tokens in later)
        return _one_less(len(loads), floor, fits=fits, may_stay=may_stay)

    def _itl_ms(self, tokens):
        return self.profile.expected_itl_ms(tokens / self.context, self.context)


class WholeSla(NamedTuple):
    """Both bounds, of replicas that serve whole requests.

    Either calls for more replicas; both must allow fewer.
    """

    prefill: PrefillSla
    decode: DecodeSla

    def verdict(self, loads, floor: int, *, may_stay: bool) -> int | None:
        """See `load.Thresholds.verdict`; `loads`: pairs of queued and KV tokens."""
        queued, held = zip(*loads, strict=True)
        found = (self.prefill.verdict(queued, floor, may_stay=may_stay),
                 self.decode.verdict(held, floor, may_stay=may_stay))
        most = [want for want in found if want is not None]
        if most and max(most) > len(loads):
            return max(most)
        if None in found:
            return None
        with_queues = self.decode.verdict([sum(load) for load in loads], floor, may_stay=may_stay)
        return None if with_queues is None or with_queues > len(loads) else max(*found, with_queues)


def _growth(replicas):
    """Return the factor by which the load of each replica grows if there is one less."""
    return replicas / (replicas - 1) if replicas > 1 else 1.0


def _one_less(replicas, floor, *, fits, may_stay):
    if not fits or (replicas == 1 and not may_stay):
        return None
    return max(replicas - 1, floor) if replicas > 1 else replicas
