"""`table`: measured collectives, interpolated in size and in number of ranks.

Between two sizes the time is linear in the size, exact where a collective takes a + b x bytes. Leaving every inner
point out in turn and predicting it from its neighbours misses by 3.9 % in the mean on aiconfigurator's H100 NCCL
tables with doubling sizes; interpolating log time in log size misses by 4.5 %, time in log size by 10.2 %. On Vidur's
dense tables all miss by 3 %. Below the least size its time is held, above the largest its bandwidth; both count as
extrapolated.
"""
cimport cython
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.collective.base cimport CollectiveGroup, CollectiveKind
from simulator.collective.memo cimport (
    EXACT,
    EXTRAPOLATED,
    INTERPOLATED,
    Origin,
    RememberingCollective,
)

from simulator.errors import InputErrors, KeyFault
from simulator.collective.groups import GROUPS, KINDS, Group, groups_of, node_size
from simulator.collective.table.mix import find_mix
from simulator.collective.table.curves import Choice, read_curves

NEEDED = {"tensor": "all_reduce", "pipeline": "send_recv"}
File = Annotated[str, Meta(min_length=1, extra={"path": True})]


class TableParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured curves, valid for the links and library they were measured on."""

    files: Annotated[list[File], Meta(min_length=1, description=(
        "CSV files, plain or .gz, of Vidur, aiconfigurator, apex_plus or the columns collective, num_ranks, "
        "ranks_per_node, num_bytes, time_us; of curves in several files the first counts"))]
    statistic: Annotated[Literal["min", "max", "mean", "median"], Meta(description="of Vidur's repetitions")] = "median"
    dtype: Annotated[str, Meta(description="data type of NCCL and apex_plus tables")] = "half"
    cuda_graph: Annotated[bool, Meta(description=(
        "custom all-reduce as inside a CUDA graph, rather than launched by the host"))] = True
    outside: Annotated[Literal["extrapolate", "error"], Meta(description=(
        "what to do with sizes and groups that were not measured; extrapolations are counted"))] = "extrapolate"


cdef enum:
    NUM_GROUPS = 4
    NUM_KINDS = 5

cdef struct Points:             # one curve
    int32_t size
    double* num_bytes
    double* ns

cdef struct Mixed:              # see mix.Mix
    bint is_free                # a group of one
    bint is_known               # some curve serves it
    bint is_measured
    bint is_between
    double weight
    double scale
    Points lower
    Points upper


cdef inline double time_at(const Points* points, double num_bytes, Origin* origin) noexcept nogil:
    """Return the time of one size, and raise `origin` where it is no measured point."""
    cdef int32_t low = 0, high = points.size - 1, middle
    if num_bytes < points.num_bytes[0]:
        origin[0] = EXTRAPOLATED
        return points.ns[0]
    if num_bytes > points.num_bytes[high]:
        origin[0] = EXTRAPOLATED
        return points.ns[high] * (num_bytes / points.num_bytes[high])
    while high - low > 1:
        middle = (low + high) // 2
        if points.num_bytes[middle] <= num_bytes:
            low = middle
        else:
            high = middle
    if num_bytes == points.num_bytes[low]:
        return points.ns[low]
    if num_bytes == points.num_bytes[high]:
        return points.ns[high]
    if origin[0] == EXACT:
        origin[0] = INTERPOLATED
    return points.ns[low] + (points.ns[high] - points.ns[low]) * (
        (num_bytes - points.num_bytes[low]) / (points.num_bytes[high] - points.num_bytes[low]))


@cython.final
cdef class Table(RememberingCollective):
    """Measured times, interpolated; see `TableParameters`."""

    Parameters = TableParameters

    cdef readonly object parameters
    cdef readonly dict curves               # curves.Place -> Curve
    cdef dict _groups
    cdef Mixed _mixes[NUM_GROUPS][NUM_KINDS]
    cdef bint _is_strict

    def __init__(self, parameters, deployment):
        if deployment is None:
            raise ValueError("collective table needs a deployment")
        self.parameters = parameters
        self._is_strict = parameters.outside == "error"
        choice = Choice(parameters.statistic, parameters.dtype, parameters.cuda_graph)
        self.curves = {}
        for file in parameters.files:
            self.curves = read_curves(file, choice) | self.curves
        self._groups = groups_of(deployment.parallelism)
        domain = node_size(deployment)
        for g, name in enumerate(GROUPS):
            for k, kind in enumerate(KINDS):
                self._set(&self._mixes[g][k], self._groups[name], find_mix(
                    self.curves, kind, self._groups[name], domain))
        self._require(domain)

    def __dealloc__(self):
        for g in range(NUM_GROUPS):
            for k in range(NUM_KINDS):
                free(self._mixes[g][k].lower.num_bytes)
                free(self._mixes[g][k].upper.num_bytes)

    cdef int _set(self, Mixed* mixed, object group, object mix) except -1:
        mixed.is_free = group.size <= 1
        mixed.is_known = mix is not None
        if mix is None:
            return 0
        mixed.is_measured, mixed.is_between = mix.is_measured, mix.is_between
        mixed.weight, mixed.scale = mix.weight, mix.scale
        self._copy(&mixed.lower, mix.lower)
        return self._copy(&mixed.upper, mix.upper)

    cdef int _copy(self, Points* points, object curve) except -1:
        cdef Py_ssize_t n = len(curve.num_bytes)
        free(points.num_bytes)      # __init__ may run again
        points.num_bytes = <double*>malloc(2 * n * sizeof(double))
        if points.num_bytes == NULL:
            raise MemoryError()
        points.ns = points.num_bytes + n
        points.size = <int32_t>n
        for i in range(n):
            points.num_bytes[i] = curve.num_bytes[i]
            points.ns[i] = curve.ns[i]
        return 0

    def _require(self, domain):
        """Refuse files that lack what every model needs of a group."""
        faults = [KeyFault(f"latency.collective.files: {self._lacks(kind, self._groups[name], domain)}")
                  for g, name in enumerate(GROUPS) for k, kind in enumerate(KINDS)
                  if kind == NEEDED.get(name) and self._groups[name].size > 1 and not self._mixes[g][k].is_known]
        if faults:
            raise InputErrors(faults)

    def _lacks(self, kind, group, domain):
        found = sorted(self.curves)
        listed = "; ".join(f"{place.kind} of {place.num_ranks}, {place.ranks_per_node} a node" for place in found[:8])
        size = 2 if kind == "send_recv" else group.size
        return (f"no {kind} of {size} ranks, {Group(size, group.stride).per_node(domain)} a node, nor one to scale; "
                f"measured: {listed}{'; ...' if len(found) > 8 else ''}")

    cdef double compute_ns(self, CollectiveGroup group, CollectiveKind kind, double num_bytes,
                           Origin* origin) noexcept nogil:
        cdef const Mixed* mixed = &self._mixes[<int>group][<int>kind]
        cdef double ns
        origin[0] = EXACT
        if mixed.is_free:
            return 0.0
        if not mixed.is_known:
            self._refuse(group, kind, num_bytes, False)
            return 0.0
        if not mixed.is_measured:
            origin[0] = INTERPOLATED if mixed.is_between else EXTRAPOLATED
        ns = time_at(&mixed.lower, num_bytes, origin)
        if mixed.weight > 0.0:
            ns += (time_at(&mixed.upper, num_bytes, origin) - ns) * mixed.weight
        if origin[0] == EXTRAPOLATED and self._is_strict:
            self._refuse(group, kind, num_bytes, True)
        return ns * mixed.scale

    cdef void _refuse(self, int group, int kind, double num_bytes, bint is_outside) noexcept with gil:
        what = f"{KINDS[kind]} of {num_bytes:.0f} bytes over {self._groups[GROUPS[group]].size} ranks"
        files = ", ".join(self.parameters.files)
        reason = "outside of what was measured" if is_outside else "not measured"
        self.fail(InputErrors([f"{files}: {what} is {reason}"]))

    def warnings(self) -> list:
        """Say how much was extrapolated."""
        counts = self.provenance()
        total = sum(counts.values())
        if counts["extrapolated"] == 0:
            return []
        return [f"{counts['extrapolated']} of {total} collectives lie outside of what was measured in "
                f"{', '.join(self.parameters.files)}"]
