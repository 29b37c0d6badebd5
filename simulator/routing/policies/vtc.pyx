"""`vtc`: tenants that used more are sent to replicas with a higher number, so that they crowd each other."""
from libc.math cimport INFINITY, fabs
from libc.stdint cimport int32_t, int64_t
cimport cython

from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.routing.base cimport Router
from simulator.core.sliding_sums cimport SlidingSums
from simulator.core.tied_minima cimport TiedMinima

Weight = Annotated[float, Meta(ge=0, le=1e6)]


class VtcParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The lowest cost wins; it depends on the tenant's recent use.

    Cost of the i-th of n open replicas for a tenant that used t weighted tokens: fairness_weight x
    |i - min(t / bucket, n - 1)| + utilization_weight x min(running / max_load, 1) + a random number from 0 to 0.1, with
    bucket = max(min_bucket_tokens, (least + most) / 2) over the tenants that used any (1000 and
    8000 if none did) and t = input_token_weight x prompt tokens + output_token_weight x output tokens. A prompt counts
    when it is sent, its output when it has left: AIBrix estimates the output when it is sent. A request without tenant
    goes to any replica.
    Source: vtc-basic of vllm-project/aibrix (pkg/plugins/gateway/algorithms/vtc); the virtual token counter: Sheng et
    al., Fairness in Serving Large Language Models, OSDI 2024.
    """

    fairness_weight: Annotated[Weight, Meta(description="weight of the distance from the tenant's replica")] = 1.0
    utilization_weight: Annotated[Weight, Meta(description="weight of the running requests")] = 1.0
    max_load: Annotated[float, Meta(gt=0, le=1e9, description="running requests that count as full")] = 100.0
    input_token_weight: Annotated[Weight, Meta(description="weight of a prompt token")] = 1.0
    output_token_weight: Annotated[Weight, Meta(description="weight of an output token")] = 2.0
    min_bucket_tokens: Annotated[float, Meta(gt=0, le=1e15, description=(
        "weighted tokens, at least, that move a tenant by one replica"))] = 1000.0
    window_s: Annotated[float, Meta(gt=0, extra={"inf": True}, description="time for which use is remembered")] = 300.0


cdef double FIRST_LEAST = 1000.0        # bounds while no tenant used any: AIBrix's defaults
cdef double FIRST_MOST = 8000.0
cdef double JITTER = 0.1


@cython.final
cdef class Vtc(Router):
    """Fairness between tenants by place, with the load of the replicas weighed in."""

    Parameters = VtcParameters

    cdef double _fairness, _utilisation, _max_load, _input, _output, _min_bucket
    cdef SlidingSums _used              # weighted tokens by tenant
    cdef TiedMinima _least, _most       # of _used, the latter negative; infinity: none used

    def __init__(self, parameters, context):
        cdef int32_t num_tenants = int(context.workload.demands["tenant"].max(initial=-1)) + 1
        self._fairness, self._utilisation = parameters.fairness_weight, parameters.utilization_weight
        self._max_load, self._min_bucket = parameters.max_load, parameters.min_bucket_tokens
        self._input, self._output = parameters.input_token_weight, parameters.output_token_weight
        self._used = SlidingSums(num_tenants, parameters.window_s)
        self._least, self._most = TiedMinima(max(num_tenants, 1)), TiedMinima(max(num_tenants, 1))
        self.reads_state = self.has_scores = True
        self.view.wants_counts = True

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t tenant = self.demands[row].tenant, chosen = -1, place = 0, i
        cdef double least = INFINITY, centre, cost
        self.view.look(now_ns)
        centre = self._centre(tenant, now_ns)
        for i in range(self.num_replicas):
            if not self.view.accounts[i].is_routable:
                continue
            cost = self.draws.uniform()
            if tenant >= 0:
                cost = JITTER * cost + self._cost(i, place, centre)
            if cost < least:
                chosen, least = i, cost
            place += 1
        return chosen

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        cdef int32_t tenant = self.demands[row].tenant, place = 0, i
        cdef double centre
        self.view.look(now_ns)
        centre = self._centre(tenant, now_ns)
        for i in range(self.num_replicas):
            if self.view.accounts[i].is_routable:
                scores[i] = -self._cost(i, place, centre) if tenant >= 0 else 0.0
                place += 1
            else:
                scores[i] = -INFINITY
        return 0

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return self._use(row, self._input * self.requests[row].prompt_tokens, now_ns)

    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        return self._use(row, self._output * self.requests[row].output_tokens, now_ns)

    cdef int moved(self, int32_t row, int32_t before, int32_t after, int64_t now_ns) except -1 nogil:
        return 0                # its tenant has been charged for the prompt, and pays for the output when it is over

    cdef int _use(self, int32_t row, double tokens, int64_t now_ns) except -1 nogil:
        cdef int32_t tenant = self.demands[row].tenant
        if tenant >= 0:
            self._forget(now_ns)
            self._used.add(tenant, tokens)
            self._rank(tenant)
        return 0

    cdef void _forget(self, int64_t now_ns) noexcept nogil:
        cdef int32_t tenant
        if self._used.advance(now_ns):
            for tenant in range(self._used.num_keys):
                self._rank(tenant)

    cdef void _rank(self, int32_t tenant) noexcept nogil:
        cdef double used = self._used.sums[tenant]
        self._least.set(tenant, used if used > 0 else INFINITY)
        self._most.set(tenant, -used if used > 0 else INFINITY)

    cdef double _centre(self, int32_t tenant, int64_t now_ns) noexcept nogil:
        """Return the place of a tenant among the open replicas."""
        cdef double least, most
        cdef int32_t num_open = 0, i
        if tenant < 0:
            return 0.0
        for i in range(self.num_replicas):
            num_open += self.view.accounts[i].is_routable
        self._forget(now_ns)
        least, most = self._least.least(), -self._most.least()
        if least == INFINITY:
            least, most = FIRST_LEAST, FIRST_MOST
        return min(self._used.sums[tenant] / max(self._min_bucket, (least + most) / 2), <double>(num_open - 1))

    cdef double _cost(self, int32_t replica, int32_t place, double centre) noexcept nogil:
        return (self._fairness * fabs(place - centre)
                + self._utilisation * min(self.view.states[replica].running / self._max_load, 1.0))
