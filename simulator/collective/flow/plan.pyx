"""A collective as lanes of messages, each with a sender and the messages it waits for; see plan.pxd."""
cimport cython

import numpy as np

LANE = np.dtype([("source", "i4"), ("target", "i4"), ("share", "f8"), ("port", "u4"), ("port_stride", "u4"),
                 ("num_steps", "i4"), ("join", "i4"), ("first_edge", "i4"), ("num_edges", "i4")])
EDGE = np.dtype([("lane", "i4"), ("lag", "i4")])


@cython.final
cdef class Plan:
    """Lanes, and the dependencies between them.

    Parameters
    ----------
    lanes : array of LANE
        `join`, `first_edge` and `num_edges` are filled in here.
    edges : int array (n, 3)
        Owner, lane, lag: step s + lag of `lane` waits until step s of the owner is done. Besides, a step waits until
        the last byte of the step before on its own lane has left.
    """

    def __cinit__(self, lanes, edges=()):
        table = np.array(lanes, LANE)
        owner, lane, lag = np.array(edges, np.int64).reshape(-1, 3).T
        if len(owner) and not (0 <= min(owner.min(), lane.min()) and max(owner.max(), lane.max()) < len(table)
                               and set(np.unique(lag).tolist()) <= {0, 1}):
            raise ValueError("an edge joins two lanes, with a lag of 0 or 1")
        order = np.argsort(owner, kind="stable")
        self.edge_table = np.empty(len(order), EDGE)
        self.edge_table["lane"], self.edge_table["lag"] = lane[order], lag[order]
        table["num_edges"] = np.bincount(owner, minlength=len(table))
        table["first_edge"] = np.cumsum(table["num_edges"]) - table["num_edges"]
        at_once = np.bincount(lane[lag == 0], minlength=len(table))         # waits of every step
        later = np.bincount(lane[lag == 1], minlength=len(table))           # of every step but the first
        if np.any(table["num_steps"] < 1):
            raise ValueError("a lane has one step or more")
        has_join = (table["num_steps"] > 1) | (at_once > 1)
        lengths = np.where(has_join, table["num_steps"], 0)
        offsets = np.cumsum(lengths) - lengths
        table["join"] = np.where(has_join, offsets, -1)
        joins = np.repeat((at_once + later + 1)[has_join], lengths[has_join]).astype(np.int32)
        joins[offsets[has_join]] = at_once[has_join]
        self.joins, self.first = joins, np.flatnonzero(at_once == 0).astype(np.int32)
        self.num_messages = int(table["num_steps"].sum())
        self.lane_table = table
        table.flags.writeable = self.edge_table.flags.writeable = False     # checked once, borrowed by C
        self.lanes, self.edges = table, self.edge_table
