# cython: language_level=3
"""The methods of a KVCache as Python functions. The tests compile this against the package's headers."""
from simulator.kv.base cimport KVCache


cdef class Face:
    cdef readonly KVCache kv

    def __init__(self, KVCache kv, num_slots):
        self.kv = kv
        kv.reserve_slots(num_slots)

    def due(self, phase):
        return self.kv._due[phase]

    def lookup(self, row, num_tokens):
        return self.kv.lookup(row, num_tokens)

    def allocate(self, slot, row, slots, *, hits=0, full_tokens=0, watermark=0, known_tokens=0):
        return bool(self.kv.allocate(slot, row, hits, slots, full_tokens, watermark, known_tokens))

    def cache(self, slot, known_tokens):
        self.kv.cache(slot, known_tokens)

    def release(self, slot, returns=True):
        self.kv.release(slot, returns)

    def slide(self, slot, settled_tokens):
        self.kv.slide(slot, settled_tokens)

    def begin_batch(self):
        self.kv.begin_batch()

    def junction(self, slot):
        return self.kv.junction(slot)

    def whole_blocks(self, num_tokens):
        return self.kv.whole_blocks(num_tokens)

    def lacking(self, slot, slots):
        return self.kv.lacking(slot, slots)

    def may_join(self, slot, computed):
        return self.kv.may_join(slot, computed)

    def regular_until(self, slot):
        return self.kv.regular_until(slot)

    def join(self, slot, phase, order):
        self.kv.join(slot, phase, order)

    def leave(self, slot, phase):
        self.kv.leave(slot, phase)

    def settle(self, slot, num_computed):
        self.kv.settle(slot, num_computed)

    def step_begin(self, phase):
        self.kv.step_begin(phase)

    def step_before(self, order):
        self.kv.step_before(order)

    def step_run(self, phase, count):
        self.kv.step_run(phase, count)
