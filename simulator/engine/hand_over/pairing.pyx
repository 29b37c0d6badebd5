"""Choice of prefill and decode replicas: whether a request is split, and when each replica is chosen."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.journey cimport ROLE_WHOLE
from simulator.domain.request cimport Outcome
from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.gateway.pairing_base cimport PairingBase
from simulator.engine.hand_over.operation cimport HandOver
from simulator.routing.disaggregation.base cimport Decider


@cython.final
cdef class Pairing(PairingBase):
    """The choice of replicas for the legs of requests of one model.

    If no replica can compute the prompt now, or the decode replica would compute it too, one replica serves the whole
    request, unless the router for prompts turns it away.

    first, second : Gateway of the replicas for prompts, and of the replicas for decode legs or whole requests.
    hand_over : HandOver. decider : Decider; None: every request is split. plan : HandOverPlan.
    """

    cdef void* _first                   # Gateway of the prefill replicas, borrowed
    cdef void* _second
    cdef void* _hand_over               # HandOver, borrowed
    cdef readonly Decider decider       # None: every request is split
    cdef bint _decode_first             # the decode replica is chosen when a request arrives
    cdef bint _turns_away  # turn a request away if no replica takes its prompt, even if another could serve all of it
    cdef const Outcome* _outcomes       # [row] of the workload: some requests have no output tokens
    cdef object _owners

    def __init__(self, Gateway first, Gateway second, HandOver hand_over, Decider decider, plan, workload):
        cdef const Outcome[::1] outcomes = workload.outcomes
        self._first, self._second, self._hand_over = <void*>first, <void*>second, <void*>hand_over
        self.decider, self._owners = decider, workload
        self._decode_first, self._turns_away = plan.decode_first, first.router.turns_away
        if len(outcomes):
            self._outcomes = &outcomes[0]

    cdef int route(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t prefill = -1, decode = -1
        if (<HandOver>self._hand_over).go_on(row, now_ns):
            return 0
        if self._decode_first:
            decode = (<Gateway>self._second).choose(row, now_ns)
            if decode < 0:
                return (<Gateway>self._first).turn_away(row, now_ns)
        if self.decider is not None:
            if self.decider.looks_at_prefill:
                prefill = (<Gateway>self._first).choose(row, now_ns)
            if not self.decider.splits(row, prefill, decode, now_ns):
                return self._keep_whole(row, decode, now_ns)
        if prefill < 0:
            prefill = (<Gateway>self._first).choose(row, now_ns)
        if prefill < 0 and self._turns_away:
            return (<Gateway>self._first).turn_away(row, now_ns)
        if prefill < 0 or (decode >= 0 and self._replica_of(self._first, prefill)
                           == self._replica_of(self._second, decode)):
            return self._keep_whole(row, decode, now_ns)
        (<HandOver>self._hand_over).begin(
            row, decode, self._replica_of(self._first, prefill), self._outcomes[row].output_tokens == 0)
        return (<HandOver>self._hand_over).send(row, prefill, now_ns)

    cdef int32_t _replica_of(self, void* gateway, int32_t place) noexcept nogil:
        return (<Gateway>gateway).view.accounts[place].replica

    cdef int _keep_whole(self, int32_t row, int32_t decode, int64_t now_ns) except -1 nogil:
        if decode < 0:
            decode = (<Gateway>self._second).choose(row, now_ns)
        if decode < 0:
            return (<Gateway>self._first).turn_away(row, now_ns)
        (<HandOver>self._hand_over).keep_whole(row)
        return (<Gateway>self._second).dispatch(row, decode, ROLE_WHOLE, now_ns)
