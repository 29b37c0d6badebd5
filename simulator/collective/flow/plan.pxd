"""A collective as lanes of messages, each with a sender and the messages it waits for."""
cimport cython
from libc.stdint cimport int32_t, uint32_t


# A lane is a connection: it carries its messages, one for each step, one after the other.
cdef packed struct Lane:
    int32_t source, target      # nodes
    double share                # of the collective's bytes that one message has
    uint32_t port               # UDP source port of step 0; another one, another choice among equal paths
    uint32_t port_stride        # of further steps
    int32_t num_steps
    int32_t join                # counter of step 0 among the joins; -1: its message waits for at most one other
    int32_t first_edge          # edges to lanes that wait for it
    int32_t num_edges


cdef packed struct Edge:        # step s + lag of a lane waits for step s of the edge's owner
    int32_t lane
    int32_t lag                 # 0 or 1


@cython.final
cdef class Plan:
    cdef readonly object lane_table, edge_table     # NumPy arrays that own the views below
    cdef const Lane[::1] lanes
    cdef const Edge[::1] edges
    cdef const int32_t[::1] first                   # lanes with a step 0 that waits for no message
    cdef const int32_t[::1] joins                   # messages that each step of a lane with a join waits for
    cdef readonly long long num_messages
