"""A tier with declared hits: each request says how many tokens the tier has of its text, and how long they take.

It replays the answers of a KV connector, as recorded runs of vLLM's scheduler have them: a decode replica that pulls
the prompt from a prefill replica, a shared store that holds a prefix, a prefill replica with blocks that are read after
the end of its request. Source: specification of the recorded scenarios, `external`, `hold` and `kv_load_time`.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.tables cimport TierUse
from simulator.kv.tier cimport External, KVTier

import numpy as np

DECLARED = np.dtype([("tokens", "i8"), ("keep_ns", "i8"), ("comes_later", "i1"), ("spare", "7i1")], align=True)


cdef packed struct Declared:
    int64_t tokens              # leading tokens of the text that it holds; 0: nothing
    int64_t keep_ns             # how long the blocks stay once the request has completed; -1: they do not stay
    char comes_later            # see External
    char spare[7]


@cython.final
cdef class DeclaredTier(KVTier):
    """Hits as declared, each returned once.

    A request that is preempted computes its text again.

    declared : structured array (requests,), `DECLARED`.
    base_ns, per_token_ns : duration of a load that `comes_later`: a constant and a part per token.
    """

    cdef const Declared* _declared
    cdef int64_t[::1] _loaded           # [row] tokens given; 0: none yet
    cdef object _owner                  # the array that _declared borrows from
    cdef double _base_ns, _per_token_ns
    cdef TierUse[::1] _use

    def __init__(self, declared, double base_ns, double per_token_ns):
        cdef const Declared[::1] rows = declared
        self._owner, self._base_ns, self._per_token_ns = declared, base_ns, per_token_ns
        self._declared = &rows[0] if len(declared) else NULL
        self._loaded = np.zeros(len(declared), np.int64)

    def attach(self, kv, content, use=None, with_tables=False):
        """See KVTier."""
        self._use = use

    cdef int match(self, int32_t row, int64_t local_tokens, External* found) except -1 nogil:
        cdef const Declared* it = &self._declared[row]
        found.tokens = 0 if self._loaded[row] > 0 else max(it.tokens - local_tokens, 0)
        found.comes_later = it.comes_later != 0
        return 0

    cdef int64_t load(self, int32_t row, int32_t slot, External found, int64_t now_ns) except -1 nogil:
        self._loaded[row] = found.tokens
        self._use[row].loaded_tokens += <int32_t>found.tokens
        return now_ns + <int64_t>(self._base_ns + self._per_token_ns * <double>found.tokens + 0.5)

    cdef int64_t keep_until(self, int32_t row, int32_t slot, int64_t now_ns) noexcept nogil:
        return now_ns + self._declared[row].keep_ns if self._declared[row].keep_ns >= 0 else -1

    cdef int64_t loaded_tokens(self, int32_t row) noexcept nogil:
        return self._loaded[row]
