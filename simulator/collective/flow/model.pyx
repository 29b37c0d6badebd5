"""`network.flow`: each collective is simulated on a network, message by message, once for each size.

All groups of a kind run at the same time, as they do in a replica, and share links max-min fairly: see network.pyx
for the time of a message and steps.py for the messages. Agreement with SimAI's NS-3 on 24 recorded
collectives: within 1.8 % where nothing collides; where ECMP collides within 4.1 % with NS-3's own choice of paths, and
14 % off the mean over others. Rings drift apart in NS-3 and hide send latency, which lock-step here does not: 3.4 % too
long was seen beyond these cases (tests/parity/test_simai_ns3.py, which holds 5 %).
"""
cimport cython
from libc.math cimport exp2, floor, log2
from libc.stdint cimport int32_t, uint64_t
from libc.string cimport memcpy
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from simulator.core.draws cimport mix
from simulator.core.hash_map cimport HashMap
from simulator.collective.base cimport (
    ALL_REDUCE, ALL_TO_ALL, SEND_RECV, CollectiveGroup, CollectiveKind)
from simulator.collective.memo cimport EXACT, INTERPOLATED, Origin, RememberingCollective
from simulator.collective.flow.network cimport FlowNetwork
from simulator.collective.flow.plan cimport Plan

from simulator.errors import InputErrors, KeyFault
from simulator.collective.flow import steps as decompose
from simulator.collective.groups import GROUPS
from simulator.collective.flow.fabrics import Fabric
from simulator.collective.flow.placement import members_of, network_of

Microseconds = Annotated[float, Meta(ge=0, le=1e9)]
NVLS_GROUP = 8      # GPUs of the smallest group that uses NVLS (aliyun/SimAI 1.6, astra-sim/system/MockNcclGroup.cc)

cdef enum:
    NUM_KINDS = 5


class FlowParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A network and how it is used; by default, rails made of the node's links."""

    topology: Annotated[str | None, Meta(description="a topology file of SimAI", extra={"path": True})] = None
    fabric: Annotated[Fabric | None, Meta(description="a network to generate")] = None
    first_gpu: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "GPU of the network on which the replica's rank 0 runs"))] = 0
    send_latency_us: Annotated[Microseconds, Meta(description="delay before each message; SimAI's AS_SEND_LAT")] = 6.0
    packet_bytes: Annotated[float, Meta(ge=1, le=1e9, description="payload of a packet")] = 9000.0
    header_bytes: Annotated[float, Meta(ge=0, le=1e6, description="header of each packet")] = 48.0
    nvls: Annotated[bool, Meta(description=(
        "all-reduce of 8 GPUs or more of a server in its NVSwitch; SimAI's AS_NVLS_ENABLE"))] = False
    relay: Annotated[bool, Meta(description=(
        "rings change rails over NVLink, NCCL's PXN; SimAI's AS_PXN_ENABLE"))] = False
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "seed of the choice among equal paths; 0: as NS-3 chooses"))] = 0
    sizes_per_octave: Annotated[int, Meta(ge=0, le=1024, description=(
        "sizes simulated between one and its double, others interpolated; 0: each size is simulated"))] = 0


cdef packed struct Timing:
    double num_bytes
    double ns
    int32_t column              # group and kind


@cython.final
cdef class Flow(RememberingCollective):
    """Collectives simulated on a network; see `FlowParameters`."""

    Parameters = FlowParameters

    cdef readonly FlowNetwork network
    cdef readonly object topology
    cdef readonly object parameters
    cdef list _members                          # by group, collectives that run at once: arrays of GPUs
    cdef dict _plans                            # by group and kind
    cdef HashMap _index                         # of group, kind and size in the timings
    cdef Timing[::1] _timings                   # all simulated times, which cost too much to forget
    cdef readonly int32_t num_simulations
    cdef int32_t _sizes_per_octave
    cdef bint _is_alone[4]                      # by group: of one rank

    def __init__(self, parameters, deployment):
        if deployment is None:
            raise ValueError("collective flow needs a deployment")
        self._forget()
        self.parameters, self._plans, self._sizes_per_octave = parameters, {}, parameters.sizes_per_octave
        self._index, self.num_simulations = HashMap(), 0
        self._timings = np.zeros(1024, [("num_bytes", "f8"), ("ns", "f8"), ("column", "i4")])
        self.topology = network_of(parameters, deployment)
        members = members_of(deployment.parallelism, parameters.first_gpu)
        num_gpus = parameters.first_gpu + deployment.parallelism.num_accelerators
        if num_gpus > self.topology.num_gpus:
            raise InputErrors([KeyFault(f"latency.collective: the network has {self.topology.num_gpus} GPUs, "
                                        f"the replica needs {num_gpus}")])
        self.network = FlowNetwork(
            self.topology, send_latency_ns=parameters.send_latency_us * 1e3, packet_bytes=parameters.packet_bytes,
            header_bytes=parameters.header_bytes, seed=parameters.seed)
        self._members = [members[name] for name in GROUPS]
        for group, rows in enumerate(self._members):
            self._is_alone[group] = len(rows[0]) < 2
            try:
                self.network.check_routes(decompose.all_to_all(rows))
            except ValueError as error:
                raise InputErrors([KeyFault(f"latency.collective: {error}")]) from None

    cdef double compute_ns(self, CollectiveGroup group, CollectiveKind kind, double num_bytes,
                           Origin* origin) noexcept nogil:
        cdef double octave, low, high, low_ns, high_ns
        origin[0] = EXACT
        if self._is_alone[<int>group]:
            return 0.0
        if self._sizes_per_octave == 0:
            return self._simulated_ns(group, kind, num_bytes)
        octave = floor(log2(num_bytes) * self._sizes_per_octave)
        low, high = exp2(octave / self._sizes_per_octave), exp2((octave + 1.0) / self._sizes_per_octave)
        low_ns = self._simulated_ns(group, kind, low)
        if num_bytes == low:
            return low_ns
        origin[0] = INTERPOLATED
        high_ns = self._simulated_ns(group, kind, high)
        return low_ns + (high_ns - low_ns) * ((num_bytes - low) / (high - low))

    cdef double _simulated_ns(self, CollectiveGroup group, CollectiveKind kind, double num_bytes) noexcept nogil:
        """Return the time of a size, simulated once."""
        cdef int32_t column = <int32_t>group * NUM_KINDS + <int32_t>kind
        cdef uint64_t key
        cdef int32_t i
        memcpy(&key, &num_bytes, sizeof(key))
        key = mix(key + <uint64_t>column * <uint64_t>0x9e3779b97f4a7c15)
        i = self._index.get(key)
        if i >= 0 and self._timings[i].num_bytes == num_bytes and self._timings[i].column == column:
            return self._timings[i].ns
        with gil:
            try:
                return self._simulate(column, key, num_bytes)
            except Exception as error:          # raised later, by raise_if_failed
                self.fail(error)
                return 0.0

    cdef double _simulate(self, int32_t column, uint64_t key, double num_bytes) except -1:
        cdef Plan plan = self._plan(column // NUM_KINDS, column % NUM_KINDS)
        cdef double ns
        with nogil:
            ns = self.network.run(plan, num_bytes)
        if self.num_simulations == self._timings.shape[0]:
            self._timings = np.concatenate([self._timings, np.zeros_like(self._timings)])
        self._timings[self.num_simulations] = Timing(num_bytes, ns, column)
        self._index.put(key, self.num_simulations)
        self.num_simulations += 1
        return ns

    def _plan(self, int group, int kind):
        if (group, kind) not in self._plans:
            plan = self._new_plan(self._members[group], kind)
            self.network.check_routes(plan)     # relays and NVSwitches too
            self._plans[group, kind] = plan
        return self._plans[group, kind]

    def _new_plan(self, members, kind):
        if kind == ALL_TO_ALL:
            return decompose.all_to_all(members)
        if kind == SEND_RECV:
            return decompose.send_receive(members)
        if kind == ALL_REDUCE and self._uses_nvls(members):
            return decompose.nvls(members, [self.network.routes.path(group[0], group[1])[1] for group in members])
        steps = decompose.all_reduce_steps if kind == ALL_REDUCE else decompose.half_steps
        return decompose.ring(members, self.topology.gpus_per_server, steps, self.parameters.relay)

    def _uses_nvls(self, members):
        per_server = self.topology.gpus_per_server
        is_inside = all(group.min() // per_server == group.max() // per_server for group in members)
        return (self.parameters.nvls and self.topology.num_nv_switches > 0 and is_inside
                and len(members[0]) >= NVLS_GROUP)
