"""Sizes of KV transfers, in bytes on the wire."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.kv.base cimport KVCache


@cython.final
cdef class Wire:
    # [prefill pool][decode pool]: of a token, of a request in addition, of a block of each group of layers; and the
    # last layer's share of a request's bytes.
    cdef const double[:, ::1] _token_bytes
    cdef const double[:, ::1] _request_bytes
    cdef const double[:, :, ::1] _block_bytes
    cdef const double[:, ::1] _layer_fracs

    @cython.final
    cdef inline double of_tokens(self, int32_t source, int32_t destination, int64_t tokens) noexcept nogil:
        return tokens * self._token_bytes[source, destination]

    @cython.final
    cdef inline double of_request(self, int32_t source, int32_t destination) noexcept nogil:
        return self._request_bytes[source, destination]

    @cython.final
    cdef inline double last_layer(self, int32_t source, int32_t destination) noexcept nogil:
        return self._layer_fracs[source, destination]

    # Return the bytes that a sequence of a hybrid cache reads into the blocks of its slot.
    cdef double of_groups(self, int32_t source, int32_t destination, KVCache kv, int32_t slot) noexcept nogil
