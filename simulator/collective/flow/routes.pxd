"""Links on the route of a message."""
cimport cython
from libc.stdint cimport int32_t, uint32_t


cdef enum:
    MAX_HOPS = 16               # of a route


cdef struct Message:
    int32_t source              # node; a GPU, or its NVSwitch where the target is a GPU
    int32_t target              # node; a GPU, or an NVSwitch of the source
    uint32_t port               # UDP source port: another one, another choice among equal paths


cdef uint32_t hash_words(const uint32_t* words, int num_words, uint32_t seed) noexcept nogil


@cython.final
cdef class Routes:
    cdef readonly int32_t num_gpus, num_links, first_switch, num_switches
    cdef readonly object topology
    cdef uint32_t _seed
    cdef double[::1] bytes_per_ns, latency_ns           # of each link
    cdef const int32_t[::1] _ends                       # node that each link leads to
    cdef const int32_t[::1] _nv_offsets, _nv_ports      # links from each GPU to NVSwitches
    cdef const int32_t[::1] _nic_offsets, _nic_ports    # and to the other switches
    cdef const int32_t[::1] _edge                       # of each GPU: see route_tables.py
    cdef readonly int32_t longest_hops                  # from an edge to a switch, of all pairs; 0: no switches
    cdef const int32_t[:, ::1] _distance                # from edge and switch, hops
    cdef const int32_t[::1] _hop_offsets, _hops         # next hops by edge and switch

    # Write the links of the message's route; how many, 0 where there is none.
    cdef int route(self, Message message, int32_t* links) noexcept nogil

    cdef int _inside(self, Message message, int32_t* links) noexcept nogil
    cdef int32_t _shared(self, int32_t port, int32_t target) noexcept nogil
    cdef int _outside(self, Message message, int32_t* links) noexcept nogil
    cdef int32_t _nearest_port(self, Message message, int32_t edge) noexcept nogil
    cdef uint32_t _choice(self, Message message, int32_t node, uint32_t num_choices) noexcept nogil
