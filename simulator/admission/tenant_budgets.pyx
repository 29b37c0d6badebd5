"""`tenant_budgets`: no tenant takes more than its share of the replicas."""
cimport cython
from libc.stdint cimport int32_t, int64_t
from typing import Annotated, Any

from simulator.admission.base cimport Admission

import msgspec
from msgspec import Meta
import numpy as np


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit on a tenant's requests in flight."""

    tenant: Annotated[str, Meta(min_length=1, description=(
        "name of the tenant, as in the column tenant of the workload"))]
    share: Annotated[float, Meta(ge=0, le=1, description="limit, as a share of replicas x max_num_seqs")]


class InnerAdmission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policy that decides about tenants within their budgets, with its keys."""

    policy: Annotated[str, Meta(description="whether a request within its tenant's budget is let in")] = "always"
    parameters: Annotated[Any, Meta(extra={"kind": "admission"})]


class TenantBudgetsParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reject a request while its tenant has more in flight than its share.

    The share is one of replicas x max_num_seqs. Tenants without a budget, and requests without a tenant, are not
    limited. Source: BLIS (inference-sim), sim/admission.go, TenantBudgetAdmission, and sim/cluster/tenant.go.
    """

    budgets: Annotated[tuple[Budget, ...], Meta(description="limits on the requests in flight of tenants")]
    sheddable_only: Annotated[bool, Meta(description="only requests of priority < 0 are rejected")] = True
    inner: Annotated[InnerAdmission, Meta(description="policy for requests within their tenant's budget")]

    def __post_init__(self):
        names = [each.tenant for each in self.budgets]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"budgets: give one for each tenant; there are several of {', '.join(twice)}")


@cython.final
cdef class TenantBudgets(Admission):
    """No tenant takes more than its share; all else another policy decides."""

    Parameters = TenantBudgetsParameters

    cdef readonly Admission inner       # for requests within their tenant's budget
    cdef bint _sheddable_only
    cdef object _arrays                 # owners of the memory behind the pointers below
    cdef double* _limits                # [tenant] requests in flight; the first is the missing tenant
    cdef int64_t* _in_flight

    def __init__(self, parameters, context):
        cdef double[::1] limits
        cdef int64_t[::1] in_flight
        tenants = context.workload.labels.get("tenant", ())
        budgets = {each.tenant: each.share for each in parameters.budgets}
        shares = [np.inf, *(budgets.get(str(name), np.inf) for name in tenants)]
        self._arrays = np.array(shares) * max(context.num_slots, 1), np.zeros(len(shares), np.int64)
        limits, in_flight = self._arrays
        self._limits, self._in_flight = &limits[0], &in_flight[0]
        self._sheddable_only = parameters.sheddable_only
        self.inner = context.make("admission", parameters.inner, context)
        self.reads_state = True         # it must be notified when requests leave

    cdef int admit(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t tenant = self.demands[row].tenant + 1
        if self._in_flight[tenant] > self._limits[tenant]:
            if not self._sheddable_only or self.classes.is_sheddable(row):
                return 0
        return self.inner.admit(row, now_ns)

    cdef int sent(self, int32_t row, int64_t now_ns) except -1 nogil:
        self._in_flight[self.demands[row].tenant + 1] += 1
        return self.inner.sent(row, now_ns)

    cdef int left(self, int32_t row, int64_t now_ns) except -1 nogil:
        self._in_flight[self.demands[row].tenant + 1] -= 1
        return self.inner.left(row, now_ns)
