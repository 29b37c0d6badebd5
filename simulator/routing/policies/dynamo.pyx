"""`dynamo`: the least cost of prefill that is left and blocks that are held, or nearly the least."""
from libc.math cimport INFINITY, NAN, exp
from libc.stdlib cimport calloc, free
cimport cython

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.core.draws cimport Draws
from simulator.domain.replica_state cimport ReplicaState
from simulator.routing.parts.holders cimport holders
from simulator.routing.parts.pick cimport highest, pick_in_proportion, pick_least
from simulator.signals.media cimport DISK, HOST, NUM_MEDIA, SHARED

from simulator.domain.latency_line import PriceUs
from simulator.routing.parts.prefix_router import Capacity

LARGEST_BLOCK = 1024                # tokens: with 2**33 tokens and a weight of 16 bits a cost fits a double's 53 bits
Weight = Annotated[float, Meta(ge=0, le=1e6)]
Seconds = Annotated[float, Meta(gt=0, le=1e6)]
Share = Annotated[float, Meta(ge=0, le=1)]
Threshold = Annotated[float, Meta(ge=0, le=1e9)]


class DynamoParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The lowest cost wins, any of several, or nearly the lowest.

    cost = prefill_weight x max(0, P / block size - credit) + D + request_weight x requests in flight.
    P: uncached prompt tokens of the requests there that have no first token yet, and all of this request; D: whole
    blocks of the requests there, equal ones once, and of this request; with output_blocks also of their outputs. credit
    = (overlap_credit x leading blocks of the prompt in the KV cache of the replica + host_credit x further blocks in
    its host memory + disk_credit x further blocks there on disks of its own + shared_credit x blocks after the first
    part in stores that it shares) / (1 + credit_decay x (P - least P of any replica) / prompt tokens): content of
    [kv_tiers]. With a temperature T, a replica is drawn with a chance in proportion to exp(-(cost - least) / ((most -
    least) x T)).
    A bound session goes to its replica, also if others cost less or it is busy; where it is closed, a session is bound
    anew.
    Source: NVIDIA Dynamo, lib/kv-router/src/scheduling/selector.rs and config.rs (2026); it names host_credit and the
    next two host_cache_hit_weight, disk_cache_hit_weight, shared_cache_multiplier; earlier versions are
    prefill_weight = overlap_weight. Accounts and credit_decay: decisions of ai-dynamo-runtime 1.6.1, recorded.
    """

    overlap_credit: Annotated[Weight, Meta(extra={"unit": "blocks"}, description=(
        "credit of a block that the replica has in its KV cache"))] = 1.0
    credit_decay: Annotated[Weight, Meta(description=(
        "reduces the credit of replicas with more prompt tokens to compute than others; 0: not"))] = 0.0
    host_credit: Annotated[Weight, Meta(extra={"unit": "blocks"}, description=(
        "credit of a further block in host memory; host_credit, disk_credit, shared_credit: with overlap = "
        "\"events\""))] = 0.75
    disk_credit: Annotated[Weight, Meta(extra={"unit": "blocks"}, description=(
        "credit of a further block there on a disk of its own"))] = 0.25
    shared_credit: Annotated[Weight, Meta(extra={"unit": "blocks"}, description=(
        "credit of a further block in a store that replicas share"))] = 0.0
    prefill_weight: Annotated[Weight, Meta(description="cost of a block that is left to compute")] = 1.0
    request_weight: Annotated[Weight, Meta(extra={"unit": "blocks"}, description="cost of a request in flight")] = 0.0
    temperature: Annotated[float, Meta(ge=0, le=1e6, description="0: the least cost; more: more random")] = 0.0
    load: Annotated[Literal["router", "replicas"], Meta(description=(
        "source of P and D: router: the requests that it sent, as in Dynamo; replicas: their reports of prompt tokens "
        "that wait or run, and of KV blocks in use"))] = "router"
    track_prefill_tokens: Annotated[bool, Meta(description="false: P counts this request alone")] = True
    assume_kv_reuse: Annotated[bool, Meta(description=(
        "equal blocks of several requests at a replica count once in D; false: each time, as where replicas cache no "
        "prefixes"))] = True
    output_blocks: Annotated[bool, Meta(description=(
        "D counts a block for each block_size output tokens, which the router passes on; with a predicted output "
        "length (expected_tokens) it and all blocks that no other request there has weigh 1 - generated / predicted "
        "tokens"))] = False
    prefill_load_model: Annotated[Literal["none", "line"], Meta(description=(
        "line: of the oldest unfinished prefill of a replica only those tokens count in P that are not predicted to be "
        "done: the share 1 - time as the oldest / (prefill_base_us + per_prefill_token_us x its uncached tokens); a "
        "line in place of Dynamo's estimator. none: all tokens count until the first token"))] = "none"
    prefill_base_us: Annotated[PriceUs, Meta(description=(
        "with prefill_load_model: predicted duration of a prefill"))] = 5000.0
    per_prefill_token_us: Annotated[PriceUs, Meta(description=(
        "with prefill_load_model: predicted duration of an uncached prompt token"))] = 20.0
    active_decode_blocks_threshold: Annotated[Share | None, Meta(extra={"unit": ""}, description=(
        "a replica with a larger share of its KV blocks in D, without this request, gets no requests; absent: any "
        "share"))] = None
    active_prefill_tokens_threshold: Annotated[Threshold | None, Meta(extra={"unit": "tokens"}, description=(
        "a replica with more tokens in P, without this request, gets no requests; absent: any number"))] = None
    active_prefill_tokens_threshold_frac: Annotated[Threshold | None, Meta(extra={"unit": ""}, description=(
        "as active_prefill_tokens_threshold, in units of max_num_batched_tokens"))] = None
    overlap: Annotated[Literal["events", "approximate"], Meta(description=(
        "known blocks of a replica: events: as its cache reports, up to cache_signal_delay_s late; approximate: the "
        "prompts that the router remembers sending"))] = "events"
    predicted_ttl_s: Annotated[Seconds | None, Meta(description=(
        "events: time for which the blocks of a prompt count as cached where it was sent, before the cache reports "
        "them; absent: they do not"))] = None
    approximate_policy: Annotated[Literal["ttl", "lru"], Meta(description=(
        "approximate: ttl: blocks are remembered for approximate_ttl_s, and within capacity_blocks; lru: within "
        "capacity_blocks alone"))] = "ttl"
    approximate_ttl_s: Annotated[Seconds, Meta(description=(
        "approximate: time for which the blocks of a prompt are remembered after it was sent last"))] = 120.0
    capacity_blocks: Capacity = 1_000_000
    session_affinity_ttl_s: Annotated[Annotated[float, Meta(ge=1, le=31_536_000)] | None, Meta(description=(
        "time after the end of the last request of a session for which it stays bound to its replica; absent: sessions "
        "are not bound"))] = None

    def __post_init__(self):
        if self.predicted_ttl_s is not None and self.overlap == "approximate":
            raise ValueError('predicted_ttl_s: expected none with overlap = "approximate", found '
                             f"{self.predicted_ttl_s}: all known blocks are predictions there")

        if not self.assume_kv_reuse and self.load == "replicas":
            raise ValueError('assume_kv_reuse: expected true with load = "replicas", found false: their reports of '
                             "used blocks count a block once")
        if self.output_blocks and self.load == "replicas":
            raise ValueError('output_blocks: expected false with load = "replicas", found true: their reports of used '
                             "blocks have output blocks")
        if self.prefill_load_model != "none" and (self.load == "replicas" or not self.track_prefill_tokens):
            raise ValueError('prefill_load_model: expected "none" with load = "replicas" or track_prefill_tokens = '
                             f'false, found "{self.prefill_load_model}": no account of prefills is kept')

    @property
    def prices_us(self):
        """Predicted durations of a prefill and of its tokens; None: no prediction."""
        return None if self.prefill_load_model == "none" else (self.prefill_base_us, self.per_prefill_token_us)

    @property
    def ttl_s(self):
        """Time for which the router remembers a prompt; 0: any time."""
        if self.overlap == "events":
            return self.predicted_ttl_s or 0.0
        return self.approximate_ttl_s if self.approximate_policy == "ttl" else 0.0


def is_short(weight) -> bool:
    """Return whether products of a weight and tokens are exact.

    The weight has 16 bits, ten behind the point.
    """
    return weight <= 64 and (weight * 1024).is_integer()


cdef int32_t pick_with_equals(TiedMinima loads, const int32_t* found, double* costs, int32_t num_holders,
                              double cost, Draws draws) noexcept nogil:
    """Return one of the replicas with the least load and of the found ones with that cost; `costs` is overwritten."""
    cdef double least = loads.least(), load
    cdef bint is_equal
    cdef int32_t chosen, i
    for i in range(num_holders):
        load = loads.get(found[i])
        is_equal = costs[i] == cost and load != least
        costs[i] = load if is_equal else NAN
        if is_equal:
            loads.set(found[i], least)
    chosen = pick_least(loads, draws)
    for i in range(num_holders):
        if costs[i] == costs[i]:
            loads.set(found[i], costs[i])
    return chosen


@cython.final
cdef class Dynamo(PrefixRouter):
    """The replica with the least cost."""

    Parameters = DynamoParameters
    counts_promised = True

    tier_keys = ("host_credit", "disk_credit", "shared_credit")

    @classmethod
    def weighs_promised(cls, parameters, scorers):
        """See Router."""
        return parameters.load == "router" or parameters.request_weight > 0

    def __cinit__(self, parameters, context):
        self._holders = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
        self._live = <int32_t*>calloc(2 * <size_t>self.num_replicas, sizeof(int32_t))
        self._known = <int32_t*>calloc(NUM_MEDIA * <size_t>self.num_replicas, sizeof(int32_t))
        if self._holders == NULL or self._live == NULL or self._known == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self._holders)
        free(self._live)
        free(self._known)

    def __init__(self, parameters, context):
        self._credit, self._prefill = parameters.overlap_credit, parameters.prefill_weight
        self._host, self._disk, self._shared = (getattr(parameters, key) for key in self.tier_keys)
        self._media = (self._host > 0) << HOST | (self._disk > 0) << DISK | (self._shared > 0) << SHARED
        self._request, self._temperature = parameters.request_weight, parameters.temperature
        self._decay, self._tracks_prefill = parameters.credit_decay, parameters.track_prefill_tokens
        self._is_approximate, self._row = parameters.overlap == "approximate", -1
        self._remembers = self._is_approximate or parameters.predicted_ttl_s is not None
        self.reads_state = self.has_scores = True
        self._loads, self._prefills = TiedMinima(self.num_replicas), TiedMinima(self.num_replicas)
        self._most_blocks, self._most_tokens, self._most_batches = (
            INFINITY if value is None else value for value in (
                parameters.active_decode_blocks_threshold, parameters.active_prefill_tokens_threshold,
                parameters.active_prefill_tokens_threshold_frac))
        # Then no sum or product is rounded, so that the order of costs does not depend on the prompt.
        self._ranks_loads = self._temperature == 0 and is_short(self._prefill) and is_short(self._request) and (
            self.index.block_size & (self.index.block_size - 1)) == 0 and self.index.block_size <= LARGEST_BLOCK
        self.view.wants_in_flight = self.view.wants_in_flight or self._request > 0
        self.view.wants_counts = True
        if parameters.session_affinity_ttl_s is not None:
            self._bindings = SessionBindings(context, parameters.session_affinity_ttl_s)
        if parameters.load == "router":
            self.account = KvAccount(
                context, self._tracks_prefill, parameters.prices_us, parameters.assume_kv_reuse)
            if parameters.output_blocks and context.prefill_legs is None:       # a prefill replica has no outputs
                self._outputs = OutputBlocks(context, self.account.blocks)
        else:
            self.view.wants_blocks = True
        if not self._is_approximate:
            self.view.wants_caches = True
            self.view.wants_tiers = self.view.wants_tiers or self._media != 0

    @classmethod
    def sees_tiers(cls, parameters):
        """See Router."""
        return parameters.overlap == "events" and any(getattr(parameters, key) for key in cls.tier_keys)

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef double best, width
        cdef int32_t i
        if self._bindings is not None:
            i = self._bindings.of(row, now_ns)
            if i >= 0:
                self._take_loads(now_ns)
                return i
        if self._ranks_loads and (self._is_approximate or not self.view.has_tiers):
            i = self._pick_by_load(row, now_ns)
            if i >= -1:
                return i
        self.score(row, now_ns, self.preference)
        best = highest(self.preference, self.num_replicas)
        if self._temperature == 0 or best == -INFINITY:
            return self.pick_preferred()
        width = 0.0
        for i in range(self.num_replicas):
            if self.preference[i] > -INFINITY:
                width = max(width, best - self.preference[i])
        for i in range(self.num_replicas):
            if self.preference[i] > -INFINITY:
                self.preference[i] = (exp((self.preference[i] - best) / (width * self._temperature)) if width > 0
                                      else 1.0)
        return pick_in_proportion(self.preference, self.num_replicas, self.draws)

    cdef int32_t _pick_by_load(self, int32_t row, int64_t now_ns) except -3 nogil:
        """Pick among the replicas with blocks of the prompt and the least loaded ones; -1: all are closed."""
        cdef const int32_t* overlaps
        cdef double least, plain, best, load, credit
        cdef int32_t num_holders, ties = 0, i, replica
        # Then a cost is the load and a difference, not rounded: one look-up a replica, not five.
        cdef bint is_sum = self._decay == 0 and self._credit <= 64 and self._credit == <int64_t>self._credit
        cdef bint has_equal_cost = False
        self._take_loads(now_ns)
        least = self._loads.least()
        if least == INFINITY:
            return -1
        overlaps = self._look_up(row, now_ns)
        best = plain = self._cost(row, self._loads.tied(0), 0, 0, 0.0)
        num_holders = self._find_holders(overlaps)
        for i in range(num_holders):
            replica = self._holders[i]
            load, credit = self._loads.get(replica), self._credit * overlaps[replica]
            if load == INFINITY:
                self.preference[i] = INFINITY
            elif is_sum and credit * self.index.block_size <= self.requests[row].prompt_tokens:
                self.preference[i] = load + (plain - least) - self._prefill * credit - (
                    overlaps[replica] if self.account is None else self._live[replica])
            else:
                self.preference[i] = self._cost(row, replica, overlaps[replica], self._live[replica], credit)
            has_equal_cost = has_equal_cost or self.preference[i] == plain and load != least
            best = min(best, self.preference[i])
        if best == plain:
            if has_equal_cost:
                return pick_with_equals(self._loads, self._holders, self.preference, num_holders, plain, self.draws)
            return pick_least(self._loads, self.draws)
        for i in range(num_holders):
            ties += self.preference[i] == best
        ties = self.draws.below(ties) if ties > 1 else 0
        for i in range(num_holders):
            if self.preference[i] == best:
                if ties == 0:
                    return self._holders[i]
                ties -= 1
        return -2

    cdef int32_t _find_holders(self, const int32_t* overlaps) noexcept nogil:
        """Write the replicas with blocks of the prompt, cached or of live requests; return their number."""
        cdef int32_t* either = self._live + self.num_replicas
        cdef int32_t i
        if self.account is None:
            return holders(overlaps, self.num_replicas, self._holders)
        for i in range(self.num_replicas):
            either[i] = overlaps[i] | self._live[i]
        return holders(either, self.num_replicas, self._holders)

    cdef const int32_t* _look_up(self, int32_t row, int64_t now_ns) except NULL nogil:
        """Return the known blocks of the prompt at each replica, by medium if there are tiers."""
        self._row = -1
        if self.account is not None:
            self.account.blocks.match(row, self._live)
        if self._remembers:
            self.index.expire(now_ns)
            self.index.match(row, self.matched)
        if self._is_approximate:
            self._overlaps = self.matched
        elif self.view.has_tiers:
            self._overlaps = self._with_predicted(self.view.tiers_in_turn(row, self._media, now_ns), NUM_MEDIA)
        else:
            self._overlaps = self._with_predicted(self.view.cached_everywhere(row, now_ns), 1)
        self._row = row
        return self._overlaps

    cdef const int32_t* _with_predicted(self, const int32_t* reported, int32_t num_media) noexcept nogil:
        """Return known blocks by medium: blocks that the cache is predicted to have come before those of tiers."""
        cdef int32_t i, medium, missing, taken
        if not self._remembers:
            return reported
        for i in range(self.num_replicas):
            missing = max(self.matched[i] - reported[i], 0)
            self._known[i] = reported[i] + missing
            for medium in range(HOST, num_media):
                taken = min(missing, reported[medium * self.num_replicas + i])
                self._known[medium * self.num_replicas + i] = reported[medium * self.num_replicas + i] - taken
                missing -= taken
        return self._known

    cdef int _take_loads(self, int64_t now_ns) except -1 nogil:
        """Take in the replicas that changed."""
        cdef int32_t i, replica
        cdef bint is_open
        self.view.look(now_ns)
        if self.account is not None:
            self.account.note_prefills(now_ns)
        if self._outputs is not None:
            self._outputs.note_all(now_ns)
        for i in range(self.view.num_changed):
            replica = self.view.changed[i]
            is_open = self.view.accounts[replica].is_routable and not self._is_busy(replica)
            self._loads.set(replica, self._load(replica) if is_open else INFINITY)
            if self._decay > 0:
                self._prefills.set(replica, <double>self._prefill_tokens(replica) if is_open else INFINITY)
        self.view.forget_changes()
        return 0

    cdef int64_t _prefill_tokens(self, int32_t replica) noexcept nogil:
        if self.account is not None:
            return self.account.remaining(replica)
        if not self._tracks_prefill:
            return 0
        return self.view.states[replica].waiting_prefill_tokens + self.view.states[replica].running_prefill_tokens

    cdef int64_t _used_blocks(self, int32_t replica) noexcept nogil:
        cdef const ReplicaState* state = &self.view.states[replica]
        if self.account is not None:
            return self.account.blocks.blocks(replica)
        return <int64_t>state.used_blocks * max(state.block_size // self.index.block_size, 1)

    cdef bint _is_busy(self, int32_t replica) noexcept nogil:
        cdef const ReplicaState* state = &self.view.states[replica]
        cdef double tokens = <double>self._prefill_tokens(replica)
        return (tokens > self._most_tokens or tokens > self._most_batches * state.max_batched_tokens
                or self._used_blocks(replica) > self._most_blocks * state.num_blocks * max(
                    state.block_size // self.index.block_size, 1))

    cdef double _load(self, int32_t replica) noexcept nogil:
        """Return the cost of a replica without a request."""
        return (self._prefill * (<double>self._prefill_tokens(replica) / self.index.block_size)
                + self._used_blocks(replica) + self._request * self.view.accounts[replica].in_flight)

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef const int32_t* overlaps
        cdef bint has_tiers = self.view.has_tiers and not self._is_approximate
        cdef int32_t bound = -1 if self._bindings is None else self._bindings.of(row, now_ns), i
        self._take_loads(now_ns)
        overlaps = self._look_up(row, now_ns)
        for i in range(self.num_replicas):
            if i != bound and (bound >= 0 or self._loads.get(i) == INFINITY):
                scores[i] = -INFINITY
                continue
            scores[i] = -self._cost(row, i, overlaps[i], self._live[i],
                                    self._credits(overlaps + i) if has_tiers else self._credit * overlaps[i])
        return 0

    cdef double _credits(self, const int32_t* tiers) noexcept nogil:
        """Return the weighted number of cached blocks of a replica, from tiers[medium x num_replicas]."""
        return (self._credit * tiers[0] + self._host * tiers[HOST * self.num_replicas]
                + self._disk * tiers[DISK * self.num_replicas] + self._shared * tiers[SHARED * self.num_replicas])

    cdef double _cost(self, int32_t row, int32_t replica, int32_t overlap, int32_t live, double credit) noexcept nogil:
        """Return the cost; overlap: cached blocks of the prompt; live: its blocks that live requests have there."""
        cdef int32_t prompt_tokens = self.requests[row].prompt_tokens, block_size = self.index.block_size
        cdef int64_t prefill_tokens = self._prefill_tokens(replica), blocks = self._used_blocks(replica)
        if self.account is not None:
            blocks += prompt_tokens // block_size - live
        else:
            blocks += (prompt_tokens + block_size - 1) // block_size - overlap
        if self._decay > 0 and credit > 0:
            credit /= 1.0 + self._decay * (<double>prefill_tokens - self._prefills.least()) / max(prompt_tokens, 1)
        return (self._prefill * max(<double>(prefill_tokens + prompt_tokens) / block_size - credit, 0.0)
                + blocks + self._request * self.view.accounts[replica].in_flight)

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        if self._bindings is not None:
            self._bindings.sent(row, replica, now_ns)
        if self.account is not None:
            if row != self._row:
                self._look_up(row, now_ns)
            if self._outputs is not None:
                self._outputs.note(replica, now_ns)
                self._outputs.sent(row, replica)
            self.account.sent(row, replica,
                              self.requests[row].prompt_tokens - self._cached(replica) * self.index.block_size, now_ns)
        self._row = -1
        if self._remembers:
            self.index.expire(now_ns)
            self.index.touch(row, replica)
        return 0

    cdef int64_t _cached(self, int32_t replica) noexcept nogil:
        """Return the blocks of the prompt last looked up that a replica has, in its cache or in tiers with a credit."""
        cdef int64_t cached = self._overlaps[replica]
        cdef int32_t medium
        for medium in range(HOST, SHARED + 1 if self.view.has_tiers and not self._is_approximate else HOST):
            cached += self._overlaps[medium * self.num_replicas + replica]
        return cached

    cdef int32_t most_cached(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int64_t best = 0
        cdef int32_t i
        self._look_up(row, now_ns)
        for i in range(self.num_replicas):
            if self.view.accounts[i].is_routable:
                best = max(best, self._cached(i))
        return <int32_t>best

    cdef int update(self, int64_t now_ns) except -1 nogil:
        return self._take_loads(now_ns)

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        if self._bindings is not None:
            self._bindings.left(row, replica, now_ns)
        if self._outputs is not None:
            self._outputs.note(replica, now_ns)
            self._outputs.left(row, replica)
        return 0 if self.account is None else self.account.left(row, replica, now_ns)
