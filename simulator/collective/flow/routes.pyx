"""Links on the route of a message: within a server by NVSwitch, else a shortest path picked by a hash at each switch.

The hash is MurmurHash3_x86_32 (Austin Appleby, public domain) of source address, target address and both UDP ports,
seeded with the number of the switch (aliyun/ns-3-alibabacloud, switch-node.cc); addresses and the target port 100 as
in aliyun/SimAI, network_frontend/ns3/common.h and entry.h. Seed 0 thus makes NS-3's own choices.
"""
cimport cython

import numpy as np

from simulator.collective.flow.route_tables import directed, edges, next_hops, ports

cdef enum:
    TARGET_PORT = 100


cdef uint32_t hash_words(const uint32_t* words, int num_words, uint32_t seed) noexcept nogil:
    """Return MurmurHash3_x86_32 of whole words."""
    cdef uint32_t state = seed, word
    cdef int i
    for i in range(num_words):
        word = words[i] * <uint32_t>0xcc9e2d51
        word = (word << 15 | word >> 17) * <uint32_t>0x1b873593
        state ^= word
        state = (state << 13 | state >> 19) * <uint32_t>5 + <uint32_t>0xe6546b64
    state ^= <uint32_t>(4 * num_words)
    state = (state ^ state >> 16) * <uint32_t>0x85ebca6b
    state = (state ^ state >> 13) * <uint32_t>0xc2b2ae35
    return state ^ state >> 16


cdef inline uint32_t address(int32_t node) noexcept nogil:
    return <uint32_t>0x0b000001 + (<uint32_t>node // 256) * <uint32_t>0x10000 + (<uint32_t>node % 256) * <uint32_t>0x100


@cython.final
cdef class Routes:
    """The routes of a `Topology`.

    Parameters
    ----------
    topology : Topology
    seed : int
        Of the choice among equal paths; 0: as NS-3 chooses.
    """

    def __cinit__(self, topology, seed=0):
        self.topology = topology
        self.num_gpus, self.first_switch = topology.num_gpus, topology.first_switch
        self.num_switches, self.num_links = topology.num_switches, 2 * len(topology.links)
        self._seed = <uint32_t>((<object>seed * 0x9e3779b1) & 0xffffffff)
        _, ends, rates, latencies = directed(topology)
        self._ends, self.bytes_per_ns, self.latency_ns = np.ascontiguousarray(ends), rates.copy(), latencies.copy()
        self._nv_offsets, self._nv_ports = ports(topology, topology.num_gpus, topology.first_switch)
        offsets, numbers = ports(topology, topology.first_switch, topology.num_nodes)
        self._nic_offsets, self._nic_ports = offsets, numbers
        self._edge, member = edges(topology, offsets, numbers)
        self._distance, self._hop_offsets, self._hops = next_hops(topology, member)
        self.longest_hops = np.max(self._distance, initial=0)

    cdef uint32_t _choice(self, Message message, int32_t node, uint32_t num_choices) noexcept nogil:
        cdef uint32_t words[3]
        if num_choices == 1:
            return 0
        words[0] = address(message.source)
        words[1] = address(message.target)
        words[2] = message.port | <uint32_t>TARGET_PORT << 16
        return hash_words(words, 3, <uint32_t>node ^ self._seed) % num_choices

    cdef int route(self, Message message, int32_t* links) noexcept nogil:
        cdef int num_hops = self._inside(message, links)
        if num_hops or message.source >= self.num_gpus or message.target >= self.num_gpus:
            return num_hops
        return self._outside(message, links)

    cdef int _inside(self, Message message, int32_t* links) noexcept nogil:
        """Write the route over one NVSwitch, or the half of it that begins or ends there."""
        cdef int32_t i, num_common = 0, port
        cdef uint32_t remaining
        cdef bint is_up = message.target >= self.num_gpus, is_down = message.source >= self.num_gpus
        cdef int32_t gpu = message.target if is_down else message.source
        cdef int32_t switch = message.source if is_down else message.target
        if is_up and is_down:
            return 0
        if is_up or is_down:
            for i in range(self._nv_offsets[gpu], self._nv_offsets[gpu + 1]):
                if self._ends[self._nv_ports[i]] == switch:
                    links[0] = self._nv_ports[i] ^ is_down
                    return 1
            return 0
        for i in range(self._nv_offsets[gpu], self._nv_offsets[gpu + 1]):
            num_common += self._shared(i, message.target) >= 0
        if num_common == 0:
            return 0
        remaining = self._choice(message, gpu, num_common)
        for i in range(self._nv_offsets[gpu], self._nv_offsets[gpu + 1]):
            port = self._shared(i, message.target)
            if port >= 0:
                if remaining == 0:
                    links[0] = self._nv_ports[i]
                    links[1] = port ^ 1
                    return 2
                remaining -= 1
        return 0

    cdef int _outside(self, Message message, int32_t* links) noexcept nogil:
        """Write a shortest route over switches."""
        cdef int32_t edge = self._edge[message.target], port = self._nearest_port(message, edge)
        cdef int32_t node, i, row
        cdef int num_hops = 1
        if port < 0:
            return 0
        links[0] = port
        node = self._ends[port]
        while self._distance[edge, node - self.first_switch] > 0:
            row = edge * self.num_switches + node - self.first_switch
            i = self._hop_offsets[row]
            port = self._hops[i + <int32_t>self._choice(message, node, self._hop_offsets[row + 1] - i)]
            if num_hops == MAX_HOPS - 1:
                return 0
            links[num_hops] = port
            num_hops += 1
            node = self._ends[port]
        for i in range(self._nic_offsets[message.target], self._nic_offsets[message.target + 1]):
            if self._ends[self._nic_ports[i]] == node:
                links[num_hops] = self._nic_ports[i] ^ 1
                return num_hops + 1
        return 0

    cdef int32_t _nearest_port(self, Message message, int32_t edge) noexcept nogil:
        """Return the source's link to a switch nearest to the edge, by hash among equals; -1 if none leads there."""
        cdef int32_t i, distance, shortest = -1, num_equal = 0
        cdef int32_t first = self._nic_offsets[message.source], end = self._nic_offsets[message.source + 1]
        cdef uint32_t remaining
        for i in range(first, end):
            distance = self._distance[edge, self._ends[self._nic_ports[i]] - self.first_switch]
            if distance >= 0 and (shortest < 0 or distance < shortest):
                shortest, num_equal = distance, 1
            elif distance >= 0 and distance == shortest:
                num_equal += 1
        if shortest < 0:
            return -1
        remaining = self._choice(message, message.source, num_equal)
        for i in range(first, end):
            if self._distance[edge, self._ends[self._nic_ports[i]] - self.first_switch] == shortest:
                if remaining == 0:
                    return self._nic_ports[i]
                remaining -= 1
        return -1

    cdef int32_t _shared(self, int32_t port, int32_t target) noexcept nogil:
        """Return the target's link to the NVSwitch of an entry of `_nv_ports`; -1 if it has none."""
        cdef int32_t i, switch = self._ends[self._nv_ports[port]]
        for i in range(self._nv_offsets[target], self._nv_offsets[target + 1]):
            if self._ends[self._nv_ports[i]] == switch:
                return self._nv_ports[i]
        return -1

    def path(self, int32_t source, int32_t target, uint32_t port=10_000) -> list[int]:
        """Return the nodes that a message passes, ends included; none where there is no way."""
        if not (0 <= source < self.first_switch and 0 <= target < self.first_switch):
            raise ValueError(f"no nodes {source} and {target} among {self.first_switch} GPUs and NVSwitches")
        cdef int32_t links[MAX_HOPS]
        cdef int i, num_hops = self.route(Message(source, target, port), links)
        return [source] * (num_hops > 0) + [self._ends[links[i]] for i in range(num_hops)]
