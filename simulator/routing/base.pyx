"""Base of all routers: the choice of a replica for a request."""
from libc.math cimport INFINITY

from simulator.signals.load cimport effective_load

from typing import Any

import msgspec
import numpy as np

from simulator.core.random_streams import RandomStreams


class PoolLabel(msgspec.Struct, frozen=True):
    """Facts of a pool that are known to its gateway without a report.

    name : of the pool. context_range : prompt tokens for which it is meant, [least, most]; empty: any number.
    """

    name: str = "default"
    context_range: tuple = ()


class RoutingContext(msgspec.Struct, frozen=True):
    """Inputs of a router.

    view : simulator.signals.view.View of the replicas to choose from.
    workload : simulator.workload.base.Workload; only fields declared by clients may be read.
    content : simulator.kv.content.Content of its prompts.
    block_size : tokens per KV block of the replicas, in which `view.cached_blocks` counts; where their blocks differ,
        the greatest common divisor.
    seed : of the experiment.
    stream : name of the random stream.
    draws : simulator.core.draws.Draws to draw from, among equals too, in place of that stream; only for repeating the
        draws of another system. None: the stream.
    scorers : (class, weight, parameters) of each score that a router may add up.
    filters : (class, parameters) of each filter that a router may put before its scores, in their order.
    pools : a PoolLabel of each pool, by its index in `ReplicaAccount.pool`; empty: unknown.
    classes : SLO classes by name; None: unknown.
    prefill_legs : structured array (requests,), `records.REQUEST`, state of prefill legs, for the router that sends
        them; None: whole requests are sent, or decode legs.
    outputs : simulator.signals.output_counts.OutputCounts of the workload; None: those of its records.
    quotas : simulator.routing.parts.quotas.Quota of each pool, for routers with `reads_quotas`; empty: none is given.
    """

    view: Any
    workload: Any
    content: Any
    block_size: int = 16
    seed: int = 0
    stream: str = "routing"
    scorers: tuple = ()
    draws: Draws | None = None
    prefill_legs: Any = None
    outputs: Any = None
    quotas: tuple = ()
    filters: tuple = ()
    pools: tuple = ()
    classes: Any = None


cdef class Router:
    """Base of all routers; a policy overrides `route`.

    A router is built as `Policy(parameters, context)`, with its own frozen `Parameters` and a `RoutingContext`.
    """

    tier_keys = ()                      # of Parameters: weights of content in [kv_tiers]; 0: not counted
    takes_scorers = False               # it adds up `RoutingContext.scorers`
    reads_quotas = ()                   # keys of pools that it reads: weight, rpm, tpm
    why_no_legs = ""                    # why it cannot choose replicas for one leg of a request; "": it can
    takes_filters = False               # it chooses among replicas that `RoutingContext.filters` keep
    counts_promised = False             # it counts a request at its decode replica from the choice on, while the prompt
                                        # is computed elsewhere; else when the replica gets the request
    turns_away = False                  # a request without a replica for its prompt gets none for the whole request

    @staticmethod
    def usual_scorers(parameters):
        """Return (name, weight, keys) of the scorers that it adds up where an experiment gives none."""
        return ()

    @classmethod
    def weighs_promised(cls, parameters, scorers):
        """Return whether it chooses by counts that hold such requests.

        scorers : (class, weight, parameters) of each that it adds up.
        """
        return cls.counts_promised

    @classmethod
    def sees_tiers(cls, parameters):
        """Return whether it looks at the content of replicas' KV tiers."""
        return any(getattr(parameters, key) for key in cls.tier_keys)

    @classmethod
    def idle_keys(cls):
        """Return the keys of `Parameters` without an effect unless there is a table: key -> (table, why)."""
        return dict.fromkeys(cls.tier_keys, ("kv_tiers", "it weighs the content of tiers"))

    def __cinit__(self, parameters, context, *_, **__):
        cdef const Request[::1] requests = context.workload.requests
        cdef const Demand[::1] demands = context.workload.demands
        self.view = context.view
        self.num_replicas = self.view.num_replicas
        self._owners = context.workload
        if len(requests):
            self.requests, self.demands = &requests[0], &demands[0]
        self.content = context.content
        self.draws = context.draws or Draws(RandomStreams(context.seed).generator(context.stream))

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        return -1

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return 0

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return 0

    cdef int moved(self, int32_t row, int32_t before, int32_t after, int64_t now_ns) except -1 nogil:
        self.left(row, before, now_ns)
        return self.sent(row, after, now_ns)

    cdef int opened(self, int32_t replica, int64_t now_ns) except -1 nogil:
        return 0

    cdef int closed(self, int32_t replica, int64_t now_ns) except -1 nogil:
        return 0

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int32_t i
        self.view.look(now_ns)
        for i in range(self.num_replicas):
            scores[i] = -<double>effective_load(self.view, i) if self.view.accounts[i].is_routable else -INFINITY
        return 0

    def for_decodes(self):
        """Return a router for decode legs that sees the replicas of this one and shares its records."""
        raise TypeError(f"{type(self).__name__} chooses replicas for one leg of requests alone")

    # The face for tests and exploration.

    def choose_replica(self, row, now_ns):
        """Return the replica for a request, as the engine would; -1: none."""
        return self.route(row, now_ns)

    def note_sent(self, row, replica, now_ns):
        """Notify the router that a request was sent to a replica."""
        self.sent(row, replica, now_ns)

    def note_left(self, row, replica, now_ns):
        """Notify the router that a request has left a replica."""
        self.left(row, replica, now_ns)

    def scores(self, row, now_ns):
        """Return the score of each replica for a request, as decision traces show them."""
        cdef double[::1] out
        result = np.empty(self.num_replicas)
        out = result
        self.score(row, now_ns, &out[0])
        return result
