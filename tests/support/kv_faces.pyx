"""The methods of KV caches, and of what is below and beside them, as Python functions."""
from libc.stdint cimport int32_t, int64_t

from simulator.kv.base cimport KVCache
from simulator.kv.blis_cache cimport BlisKV
from simulator.kv.radix cimport RadixKV
from simulator.kv.radix_host cimport HostTree
from simulator.kv.radix_tree cimport Node
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


cdef class RadixFace:
    """Of a RadixKV and its tree."""

    cdef readonly RadixKV kv

    def __init__(self, RadixKV kv, num_slots):
        self.kv = kv
        kv.reserve_slots(num_slots)

    # ---- pages

    def begin(self, slot, row, num_tokens, room):
        """Begin with what is found of so many tokens, if there is room for so many; return what was found, or -1."""
        cdef int32_t node = 0, found = self.kv.find(row, num_tokens, &node)
        self.kv.keep(slot, node, found)
        need = whole_pages(self.kv, room) - found
        if need > self.kv.available():
            self.kv.release(slot, False)
            return -1
        self.kv.make_room(need)
        self.kv.take(slot, max(room, found))
        return found

    def grow(self, slot, room):
        """Take pages for so many tokens; return whether there are any."""
        need = whole_pages(self.kv, room) - whole_pages(self.kv, self.kv.tokens(slot))
        if need > self.kv.available():
            return False
        self.kv.make_room(need)
        self.kv.take(slot, room)
        return True

    def publish(self, slot, row, num_tokens, prompt_tokens, priority):
        self.kv.publish(slot, row, num_tokens, prompt_tokens, priority)

    def release(self, slot):
        self.kv.release(slot, False)

    def make_room(self, tokens):
        self.kv.make_room(tokens)

    # ---- the tree

    def match(self, row, num_tokens):
        cdef int32_t node = 0, found = self.kv.tree.match(row, num_tokens, &node)
        return found, node

    def insert(self, row, num_tokens, priority=0, counted=0):
        cdef int32_t node = 0, found = self.kv.tree.insert(row, num_tokens, priority, counted, 0, &node)
        return found, node

    def lock(self, node, change):
        self.kv.tree.lock(node, 0, change)

    def evict(self):
        return self.kv.tree.evict()

    def nodes(self):
        """Return (depth in tokens, tokens, locks, hits, priority) of each node, sorted."""
        return sorted(self._below(0, 0))

    def _below(self, int32_t node, depth):
        cdef const Node* it
        cdef int32_t child = self.kv.tree.first_child(node)
        found = []
        while child >= 0:
            it = &self.kv.tree._nodes[child]
            found.append((depth, it.end - it.begin, it.locks, it.hits, it.priority))
            found += self._below(child, depth + it.end - it.begin)
            child = self.kv.tree.next_sibling(child)
        return found


cdef class HostTreeFace:
    """Of a RadixKV with a HostTree."""

    cdef readonly RadixKV kv
    cdef HostTree tree

    def __init__(self, RadixKV kv, num_slots):
        self.kv, self.tree = kv, kv.tree
        kv.reserve_slots(num_slots)

    def find(self, row, num_tokens):
        """Return tokens on the accelerator and in host memory alone, and the nodes where either ends."""
        cdef int32_t node = 0, found = self.kv.find(row, num_tokens, &node)
        return found, self.tree.host_tokens, node, self.tree.host_node

    def keep(self, slot, node, found):
        self.kv.keep(slot, node, found)

    def load_back(self, slot, node, tokens, row):
        return self.kv.load_back(slot, node, tokens, row)

    def take(self, slot, tokens):
        """Take pages for so many tokens; return whether there are any."""
        need = whole_pages(self.kv, tokens) - whole_pages(self.kv, self.kv.tokens(slot))
        if need > self.kv.available():
            return False
        self.kv.make_room(need)
        if need > self.kv.blank_tokens():
            return False
        self.kv.take(slot, tokens)
        return True

    def publish(self, slot, row, num_tokens, prompt_tokens, priority):
        self.kv.publish(slot, row, num_tokens, prompt_tokens, priority)

    def release(self, slot):
        self.kv.release(slot, False)

    def make_room(self, tokens):
        self.kv.make_room(tokens)

    def counts(self):
        """Return how many copies and loads were asked for and not finished."""
        return self.tree.num_backups, self.tree.num_loadings, self.tree.num_extents

    def finish_backups(self):
        """Finish all copies to host memory; with write_back that is done already."""
        cdef int32_t i
        for i in range(self.tree.num_backups if not self.tree._writes_back else 0):
            self.tree.finish_backup(&self.tree.backups[i])
        self.tree.num_backups = 0

    def finish_loads(self):
        cdef int32_t i
        for i in range(self.tree.num_loadings):
            self.tree.finish_load(&self.tree.loadings[i])
        self.tree.num_loadings = 0

    def finish_extents(self):
        cdef int32_t i
        for i in range(self.tree.num_extents):
            self.tree.unlock_host(self.tree.extents[i].node, self.tree.extents[i].lock)
        self.tree.num_extents = 0

    def insert_host(self, node, row, begin, end):
        """Read tokens behind a node, if they have room; return whether."""
        cdef int64_t lock = self.tree.lock_host(node)
        has_room = self.tree.make_host_room(end - begin)
        if has_room:
            self.tree.host_free -= end - begin
            self.tree.host_free += self.tree.insert_host(node, row, begin, end)
        self.tree.unlock_host(node, lock)
        return has_room


cdef int64_t whole_pages(RadixKV kv, int64_t tokens) noexcept:
    """Return the tokens of the pages that so many tokens fill or begin."""
    return (tokens + kv.block_size - 1) // kv.block_size * kv.block_size
