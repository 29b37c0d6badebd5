"""Python faces of Llumnix's counts, metrics and rules."""
from libc.stdint cimport int8_t, int32_t

from simulator.core.draws cimport Draws
from simulator.routing.llumnix.account cimport Dispatch, LegCounts, LocalAccount
from simulator.routing.llumnix.candidates cimport Candidates, note_hits, run_of_chunks
from simulator.routing.llumnix.dispatcher cimport PD_BATCH, PD_STAGED, WHOLE, Choice, Dispatcher, Pipeline
from simulator.routing.llumnix.filters cimport FilterChain, apply_filters, fill_chain, reserve
from simulator.routing.llumnix.lite cimport LiteCounts, LiteState
from simulator.routing.llumnix.metrics cimport is_less, metric_value
from simulator.routing.llumnix.planner cimport MovePlanner, PairRule, Pairs
from simulator.routing.llumnix.predictor cimport OnlinePredictor, ProfileTable, chunked_prefill_ms, decode_ms
from simulator.routing.llumnix.selectors cimport Selector, fill_selector, select
from simulator.routing.rescheduling.base cimport Movable, Move, Rescheduler

import numpy as np

from simulator.core.random_streams import RandomStreams
from simulator.routing.llumnix.composition import INFER_TYPES, metric_code
from simulator.routing.llumnix.planner import PAIR_SELECTORS
from simulator.routing.rescheduling.base import MOVABLE, ORDER_NAMES, RULE_NAMES


class AccountFace:
    """A LocalAccount, `account`, which reports are given to one by one."""

    def __init__(self, *arguments, **options):
        self.account = LocalAccount(*arguments, **options)
        self.check = self.account.check

    def note_sent(self, row, replica, infer_type, tokens, hit_tokens=0, now_ns=0):
        """Add a request sent in the role `infer_type`, a name."""
        (<LocalAccount?>self.account).add(row, replica, INFER_TYPES.index(infer_type), tokens, hit_tokens, now_ns)

    def note_reverted(self, row, replica):
        """Revert the count of a prefill."""
        (<LocalAccount?>self.account).revert_prefill(row, replica)

    def note_left(self, row, replica=-1):
        """Forget a request."""
        (<LocalAccount?>self.account).remove(row, replica)

    def note_restart(self, replica):
        """Take up a replica anew."""
        (<LocalAccount?>self.account).restart(replica)

    def note_status(self, replica, waited, waiting, now_ns):
        """Compare with a status that shows the rows `waited` lately and `waiting`, a list, which may name strangers."""
        cdef LocalAccount account = self.account
        cdef int32_t index = account.first_of_replica[<int32_t>replica]
        while index >= 0:
            account.items[index].was_waiting = account.items[index].row in waited
            account.items[index].is_waiting = account.items[index].row in waiting
            index = account.items[index].next_of_replica
        account.reconcile(replica, <int32_t>len(waiting), now_ns)

    def dispatches(self, replica):
        """Return row -> (role, tokens, uncomputed tokens, whether a status has shown it) of a replica."""
        return dispatches(self.account, replica)

    def replicas_of(self, row):
        """Return the replicas at which a request is, first come first."""
        cdef LocalAccount account = self.account
        cdef int32_t index = account.first_of_row[<int32_t>row]
        found = []
        while index >= 0:
            found.append(account.items[index].replica)
            index = account.items[index].next_of_row
        return found[::-1]


def dispatches(LocalAccount account, replica):
    """Return row -> (role, tokens, uncomputed tokens, whether a status has shown it) of a replica."""
    cdef int32_t index = account.first_of_replica[<int32_t>replica]
    cdef Dispatch one
    found = {}
    while index >= 0:
        one = account.items[index]
        found[one.row] = (INFER_TYPES[one.infer_type], one.tokens, one.uncomputed_tokens, bool(one.is_found))
        index = one.next_of_replica
    return found


class LiteFace:
    """A LiteState with gateways that register; an absent request, or a gateway that did not send it, is refused."""

    def __init__(self, num_replicas, num_rows):
        self.state, self.gateways, self.num_replicas = LiteState(num_replicas, num_rows), set(), num_replicas
        self.check = self.state.check

    def register_replica(self, replica, version):
        """Register a replica."""
        (<LiteState?>self.state).add_replica(replica, version)

    def deregister_replica(self, replica):
        """Remove a replica and its requests."""
        (<LiteState?>self.state).remove_replica(replica)

    def deregister_gateway(self, gateway):
        """Remove a gateway and its requests."""
        cdef LiteState state = self.state
        cdef int32_t replica, index, following
        self.gateways.discard(gateway)
        for replica in range(self.num_replicas):
            index = state.first_of_replica[replica]
            while index >= 0:
                following = state.items[index].next_of_replica
                if state.items[index].gateway == gateway:
                    state.release(index)
                index = following

    def note_sent(self, row, replica, gateway, tokens):
        """Add a request, which is nowhere yet."""
        cdef LiteState state = self.state
        cdef int32_t first = state.first_of_row[<int32_t>row]
        if first >= 0:
            raise KeyError(f"request {row} is at replica {state.items[first].replica} already")
        if state.counts[<int32_t>replica].version == 0 or gateway not in self.gateways:
            raise KeyError(f"replica {replica} or gateway {gateway} is not registered")
        state.allocate(row, replica, gateway, tokens)

    def note_tokens(self, row, replica, gateway, tokens):
        """Take a report of the length of a text."""
        (<LiteState?>self.state).update(self._find_sent(row, replica, gateway), tokens)

    def note_prefilled(self, row, replica, gateway):
        """Take a report of a first token."""
        (<LiteState?>self.state).prefilled(self._find_sent(row, replica, gateway))

    def note_left(self, row, replica):
        """Forget a request, if it is anywhere; there, if it is."""
        cdef LiteState state = self.state
        cdef int32_t index = state.find(row, replica)
        if index < 0:
            index = state.first_of_row[<int32_t>row]
        if index >= 0:
            state.release(index)

    def counts_of(self, replica):
        """Return (requests, tokens, waiting requests, waiting tokens); None: not registered."""
        cdef LiteCounts counts = (<LiteState?>self.state).counts[<int32_t>replica]
        if counts.version == 0:
            return None
        return counts.requests, counts.tokens, counts.waiting_requests, counts.waiting_tokens

    def _find_sent(self, row, replica, gateway):
        cdef LiteState state = self.state
        cdef int32_t index = state.find(row, replica)
        if index < 0 or state.items[index].gateway != gateway:
            raise KeyError(f"request {row} was not sent to replica {replica} by gateway {gateway}")
        return index


def begin_at(Candidates candidates, now_ns):
    """Forget the last request and set the clock."""
    candidates.begin(now_ns)


def set_clock(Candidates candidates, now_ns):
    """Set the clock alone."""
    candidates.now_ns = now_ns


def note_holders(Candidates candidates, holders, chunk_size, prompt_tokens, upstream_compat=False):
    """Note the hits of all candidates; holders: of each chunk, as indexes."""
    cdef int8_t[::1] held
    for i in range(candidates.count):
        held = np.array([*(i in each for each in holders), False], np.int8)
        hit_tokens = chunk_size * run_of_chunks(&held[0], <int32_t>len(holders), upstream_compat)
        note_hits(&candidates.items[<int32_t>i], prompt_tokens, hit_tokens, upstream_compat)


class LegsFace:
    """LegCounts, `counts`."""

    def __init__(self, *arguments):
        self.counts = LegCounts(*arguments)

    def note_sent(self, row, replica):
        """Note that a leg was sent."""
        (<LegCounts?>self.counts).sent(row, replica)

    def note_left(self, row, replica):
        """Note that it has left."""
        (<LegCounts?>self.counts).left(row, replica)

    def counted(self):
        """Return (requests, tokens) that each replica has now."""
        return counted(self.counts)


def counted(LegCounts counts):
    """Return (requests, tokens) that each replica has now."""
    counts.count()
    return [(counts.seen[i].requests, counts.seen[i].tokens) for i in range(counts._num_replicas)]


def dispatch(Dispatcher dispatcher, mode, stage, row, prompt_tokens):
    """Return the choice of a call of the scheduler: a list of candidates, None where there is none."""
    cdef Choice choice
    cdef int8_t infer_type = INFER_TYPES.index(stage or "prefill")
    dispatcher.regroup()
    dispatcher.measure(prompt_tokens)
    dispatcher.choose({"neutral": WHOLE, "pd_batch": PD_BATCH, "pd_staged": PD_STAGED}[mode], infer_type, row,
                      prompt_tokens, &choice)
    if not choice.has_groups:
        return []
    chosen = [choice.neutral] if mode == "neutral" else [choice.prefill, choice.decode]
    return [None if each < 0 else each for each in chosen]


def computed(Dispatcher dispatcher, infer_type):
    """Return the codes of the metrics that are computed for an infer type."""
    cdef Pipeline pipeline = dispatcher.pipelines[<int32_t>INFER_TYPES.index(infer_type)]
    return [pipeline.metrics[k] for k in range(pipeline.num_metrics)]


def filtered(Candidates candidates, specs, members, is_fallback=False):
    """Return the members that pass a list of FilterSpec."""
    cdef FilterChain chain
    cdef const int32_t[::1] given = np.asarray([*members, 0], np.int32)
    cdef int32_t[::1] kept = np.empty(len(members) + 1, np.int32)
    fill_chain(&chain, specs, False)
    if len(members) == 0:
        return []
    left = apply_filters(candidates, &chain, &given[0], <int32_t>len(members), is_fallback, &kept[0])
    return [int(each) for each in kept[:left]]


def reserve_all(Candidates candidates):
    """Reserve one for each where none is."""
    reserve(candidates)


def value_of(Candidates candidates, name, i, prompt_tokens=0, is_lite=False):
    """Return the value of a metric of candidate `i`."""
    return metric_value(candidates, metric_code(name, is_lite), i, prompt_tokens)


def orders_before(name, a, b):
    """Return whether value `a` of a metric is better than `b`."""
    return bool(is_less(metric_code(name), a, b))


def pairs_of(Candidates candidates, selector, sources, destinations, metric=None, by_unit=False, only_strict=True):
    """Return the pairs that a selector finds, in order."""
    cdef Pairs pairs = Pairs(candidates)
    cdef PairRule rule
    cdef int32_t i, one
    rule.selector = PAIR_SELECTORS.index(selector)
    rule.metric = metric_code(metric) if metric else 0
    rule.by_unit, rule.only_strict, rule.least_difference = by_unit, only_strict, 0
    for i, one in enumerate(sorted(sources)):
        pairs.sources[i] = one
    for i, one in enumerate(sorted(destinations)):
        pairs.destinations[i] = one
    pairs.num_sources, pairs.num_destinations = <int32_t>len(sources), <int32_t>len(destinations)
    pairs.pair(&rule)
    return [(pairs.first[i], pairs.second[i]) for i in range(pairs.count)]


def plan_for(MovePlanner planner, Rescheduler rescheduler, now_ns):
    """Replace the moves of a rescheduler."""
    planner.plan(rescheduler, now_ns)


class PredictorFace:
    """An OnlinePredictor, `predictor`."""

    def __init__(self, *arguments):
        self.predictor = OnlinePredictor(*arguments)

    def learn(self, tokens, duration_ms):
        """Add one iteration."""
        (<OnlinePredictor?>self.predictor).add(tokens, duration_ms)

    def refit(self):
        """Fit if there are samples enough; return whether there is a fit."""
        (<OnlinePredictor?>self.predictor).fit()
        return self.predictor.is_fitted

    def duration_ms(self, tokens):
        """Return the predicted duration of an iteration."""
        return (<OnlinePredictor?>self.predictor).predict_ms(tokens)

    def progress(self, backlog, running, max_batched_tokens, age_ms):
        """Return the prefill tokens computed since a status."""
        return (<OnlinePredictor?>self.predictor).computed_tokens(backlog, running, max_batched_tokens, age_ms)


def value_in(ProfileTable table, row, column):
    """Return the interpolated value; None: not in the table."""
    value = table.predict(row, column)
    return None if value != value else value


def decode_ms_in(ProfileTable table, sequences, tokens):
    """Return `decode_ms` of a table; None: not in it."""
    value = decode_ms(table, sequences, tokens)
    return None if value != value else value


def prefill_ms_in(ProfileTable table, tokens, max_batched_tokens, decode_iteration_ms):
    """Return `chunked_prefill_ms` of a table; None: not in it."""
    value = chunked_prefill_ms(table, tokens, max_batched_tokens, decode_iteration_ms)
    return None if value != value else value


def selected(Candidates candidates, spec, kept, is_fallback=False, last=-1, seed=0):
    """Return the index that a SelectorSpec chooses; -1: none."""
    cdef Selector selector
    cdef int32_t[::1] given = np.asarray([*kept, 0], np.int32)
    cdef Draws draws = Draws(RandomStreams(seed).generator("routing"))
    fill_selector(&selector, spec, False)
    selector.last = last
    return select(candidates, &selector, &given[0], <int32_t>len(kept), is_fallback, draws)


def selected_by(Rescheduler policy, requests, rule, order, value):
    """Return the rows that a rescheduler lets move, of requests as in `selected_requests`."""
    cdef int32_t[:, ::1] out = np.zeros((2, len(requests)), np.int32)
    cdef const Movable[::1] rows = np.array(requests, MOVABLE)
    cdef Move move
    move.selection.rule, move.selection.order = RULE_NAMES.index(rule), ORDER_NAMES.index(order)
    move.selection.value = value
    count = policy.select(&move, &rows[0], <int32_t>len(requests), 1600, &out[0, 0], &out[1, 0])
    return [rows[i].row for i in out[0, :count]]
