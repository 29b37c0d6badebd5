from simulator.kv.base cimport KVCache


cdef class CountingKV(KVCache):
    pass
