# cython: language_level=3
"""The methods of a KVCache as Python functions. The tests compile this against the package's headers."""
from simulator.kv.base cimport KVCache
from simulator.kv.blis_cache cimport BlisKV
from simulator.kv.retaining cimport RetainingKV
from simulator.kv.tiers.host_chain cimport HostChain
from simulator.kv.tiers.host_offload cimport HostOffload
from simulator.kv.tiers.station cimport Station


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


cdef class OffloadFace(Face):
    """Of a BlisKV and the host memory to which its blocks move."""

    cdef readonly HostOffload host

    def __init__(self, BlisKV kv, num_slots, HostOffload host):
        Face.__init__(self, kv, num_slots)
        self.host = host

    def begins(self, now_ns):
        self.host.begins(now_ns)

    def skip(self, slot, row, num_tokens):
        (<BlisKV>self.kv).skip(slot, row, num_tokens)

    def take_waiting_ns(self):
        return self.host.take_waiting_ns()

    def fail(self):
        self.host.fail()


cdef class StationFace:
    cdef readonly Station station

    def __init__(self, Station station):
        self.station = station

    def submit(self, level, way, num_blocks, now_ns):
        self.station.submit(self.station.open(level, way), num_blocks, now_ns)

    def done(self, until_ns):
        """Return the numbers of the jobs that are done by then, and were not before."""
        cdef int job
        self.station.advance(until_ns)
        numbers, job = [], self.station.take_done()
        while job >= 0:
            numbers.append(self.station.jobs[job].number)
            self.station.give_back(job)
            job = self.station.take_done()
        return numbers

    def next_end_ns(self):
        return self.station.next_end_ns()

    def cancel_all(self):
        self.station.cancel_all()


cdef class ChainFace:
    cdef readonly HostChain chain

    def __init__(self, HostChain chain):
        self.chain = chain

    def begins(self, now_ns):
        self.chain.begins(now_ns)

    def place_of(self, hash):
        return <int>self.chain.place_of(hash)

    def keep(self, hash):
        self.chain.keep(hash)

    def reload(self, hash):
        self.chain.reload(hash)

    def gather(self, hashes):
        """Let a run begin with the first hash; return how many of them come together."""
        count = 1
        self.chain.begin_run(hashes[0])
        for hash in hashes[1:]:
            if not self.chain.extend_run(hash):
                break
            count += 1
        return count

    def fetch(self):
        self.chain.fetch()

    def put_off(self, row):
        self.chain.put_off(row)

    def look_again(self):
        self.chain.look_again()

    def wait_of(self, row):
        return <int>self.chain.wait_of(row)

    def was_served(self, row):
        self.chain.was_served(row)

    def next_end_ns(self):
        return self.chain.next_end_ns()


cdef class RetainingFace(Face):
    """Of a RetainingKV."""

    def at(self, now_ns):
        (<RetainingKV>self.kv).now_ns = now_ns
