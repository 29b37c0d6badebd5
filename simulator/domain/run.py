"""What a finished, or stopped, simulation hands to the results."""
import msgspec
import numpy as np

from simulator.core.weighted_samples import WeightedSamples
from simulator.domain.encoding import Encoding
from simulator.domain.window import Window


class Run(msgspec.Struct):
    """The tables of one simulation; every metric is a pure function of them.

    workload : simulator.workload.base.Workload; the engine has filled in its `requests`. Those that had not arrived
        when the clock stopped are PENDING and count nowhere.
    complete : nothing was left to do, or the horizon was reached. False: the simulation was asked to stop, or could not
        go on, which `diagnosis` explains.
    clock_ns : simulated time reached.
    stands_still : so many turns followed each other at one instant that it would never have ended, a fault of the
        program that `diagnosis` tells.
    replicas : structured array (replicas,), `records.REPLICA`, in order of `replica`.
    itl_ns : WeightedSamples: how far apart, in ns, two successive messages of a request were.
    journeys : structured array (requests,), `records.JOURNEY`; None: requests went to their replicas at once.
    window : the stretch of time that is measured; None: from 0 to the last completion. The results fill it in, as the
        next.
    iteration_log : when iterations ran, simulator.results.iteration_log.IterationLog; None: nobody kept it.
    latency : where the durations of iterations came from, as the latency backend says; {} if it says nothing.
    incidents : what happened to replicas, in order of time, as (time_ns, replica, kind, text): "failure", "recovery",
        ...; replica -1: to none in particular. For the Chrome trace.
    legs : structured array (legs,), `records.LEG`, each stay of a request at a replica, in the order in which they
        began; None: a request stays at one replica, and the request table says it all.
    transfers : structured array (requests,), `records.TRANSFER`, how the KV of each came from its prefill replica to
        its decode replica; None: each request was done by one replica.
    transfer_counts : how many there were, and what became of them.
    lifecycle : structured array (changes,), `records.LIFECYCLE`, how replicas came, went, failed and recovered, in
        order of time; None: all were up all the time.
    adapters : {loads, reads, evictions}: of LoRA adapters, by all replicas; None: nobody tracks them.
    given_way : preemptions for others that waited, by all replicas; None: no scheduler has such.
    kv_allocation_failures : see `Scheduler.allocation_failures`, by all replicas.
    speculation : {num_draft_tokens, num_invalid_spec_tokens, steps}: drafts that were verified, those that grammars
        rejected, where any may, and how many verify steps had 0, 1, 2, ... drafts accepted, at all replicas; None:
        nobody drafts.
    kv_tiers : structured array (levels,), `records.KV_TIER`, each level of each replica; None: there are no KV tiers.
    tier_use : structured array (requests,), `records.TIER_USE`; None: likewise.
    encoded_tokens : int64 (requests,), embeddings that encoders computed for each; None: there are no encoders.
    executions : structured array (requests,), `records.EXECUTION`; None: nobody asks.
    encoding : domain.encoding.Encoding, what encode pools did; None: there are none.
    first_answer_ns : int64 (requests,), when the first token behind each request's reasoning was seen, -1: there is
        none; None: nobody says what of the outputs is reasoning. The results fill it in.
    decisions : what the decisions of the routers amount to; None: they were not written down.
    limits : of each replica, why its scheduler rejects requests, as `Scheduler.limits` says, and why it drops them;
        empty: nobody says.
    diagnosis : what a reader of the results should know, one sentence each: a livelock, for instance.
    """

    workload: object
    complete: bool
    clock_ns: int
    replicas: np.ndarray
    itl_ns: WeightedSamples
    journeys: np.ndarray | None = None
    stands_still: bool = False
    window: Window | None = None
    iteration_log: object = None
    latency: dict = {}
    incidents: list[tuple[int, int, str, str]] = []
    legs: np.ndarray | None = None
    transfers: np.ndarray | None = None
    transfer_counts: dict = {}
    lifecycle: np.ndarray | None = None
    kv_tiers: np.ndarray | None = None
    adapters: dict | None = None
    given_way: int | None = None
    kv_allocation_failures: int = 0
    speculation: dict | None = None
    tier_use: np.ndarray | None = None
    encoded_tokens: np.ndarray | None = None
    executions: np.ndarray | None = None
    encoding: Encoding | None = None
    first_answer_ns: np.ndarray | None = None
    decisions: dict | None = None
    limits: list[tuple] = []
    diagnosis: list[str] = []
