"""`lru`: evicts the chunk that was used by the request that left longest ago."""
from simulator.kv.tiers.eviction cimport EvictionPolicy


cdef class Lru(EvictionPolicy):
    pass
