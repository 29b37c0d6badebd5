"""Sizes of KV transfers, in bytes on the wire."""
cimport cython

import numpy as np


@cython.final
cdef class Wire:
    """Transfer sizes between the pools of a cluster.

    num_pools : of the cluster. pairs : {(prefill pool, decode pool): plan.Pair}.
    """

    def __init__(self, num_pools, pairs):
        most_groups = max((len(pair.block_bytes) for pair in pairs.values()), default=0)
        token_bytes, request_bytes, layer_fracs = np.zeros((3, num_pools, num_pools))
        block_bytes = np.zeros((num_pools, num_pools, most_groups))
        for pools, pair in pairs.items():
            token_bytes[pools], request_bytes[pools] = pair.token_bytes, pair.request_bytes
            layer_fracs[pools] = pair.layer_frac
            block_bytes[pools][:len(pair.block_bytes)] = pair.block_bytes
        self._token_bytes, self._request_bytes = token_bytes, request_bytes
        self._layer_fracs, self._block_bytes = layer_fracs, block_bytes

    cdef double of_groups(self, int32_t source, int32_t destination, KVCache kv, int32_t slot) noexcept nogil:
        cdef double num_bytes = 0.0
        cdef int32_t group
        for group in range(<int32_t>self._block_bytes.shape[2]):
            if self._block_bytes[source, destination, group] > 0:
                num_bytes += self._block_bytes[source, destination, group] * kv.arriving_blocks(slot, group)
        return num_bytes
