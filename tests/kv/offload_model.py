"""BLIS's blocks with host memory to which they move, in plain Python: texts, lists and dicts, nothing indexed.

Source: inference-sim (BLIS) before v0.7.0, sim/kv/tiered.go, over the block pool of `blis_pool_model`.
"""
from kv.blis_pool_model import BlisPoolModel

THRASH_US = 1000


class OffloadModel(BlisPoolModel):
    """A table may lack the first tokens of its text: `skipped`.

    host : number of a block -> (the text that ends with it, when it came).
    charged : those that came less those that went back.
    """

    def __init__(self, num_blocks, block_size, capacity, threshold):
        super().__init__(num_blocks, block_size)
        self.num_blocks, self.capacity, self.threshold = num_blocks, capacity, threshold
        self.host, self.skipped, self.reached, self.now = {}, {}, {}, 0
        self.charged = self.moved = self.replaced = self.reloaded = self.thrashed = 0

    def find(self, prompt):
        """Return the blocks of the longest known prefix of a prompt, which may be all of it."""
        return self.lookup((*prompt, None))

    def admit_whole(self, slot, prompt):
        """Let a slot begin whose prompt was found whole."""
        self.tables[slot], self.skipped[slot], self.reached[slot] = [], len(prompt), len(prompt)

    def reach(self, slot, prompt, text, length, hits=()):
        """Give a slot room for so many tokens; without room look into host memory.

        text : of these what can be found later.
        """
        begin = self.reached.get(slot, len(hits) * self.block_size)
        if self._reach(slot, text, length, hits, self.skipped.get(slot, 0)):
            return True
        if not self.bring_back():
            return False
        found = self.find(prompt)
        there = len(found) * self.block_size
        if there <= begin:
            return self._reach(slot, text, length, hits, self.skipped.get(slot, 0))
        is_new = slot not in self.tables
        if is_new and there < length:
            return self._reach(slot, text, length, found, 0)
        held = 0 if is_new else begin - self.skipped[slot]
        skipped = min(there, length) - held
        if there < length:
            return self._reach(slot, text, length, (), skipped)
        self.tables.setdefault(slot, [])
        self.skipped[slot], self.reached[slot] = skipped, length
        return True

    def _reach(self, slot, text, length, hits, skipped):
        before = self.skipped.get(slot)
        self.skipped[slot] = skipped
        done = self.allocate(slot, text, length - skipped, hits=hits)
        if done:
            self.reached[slot] = length
        elif before is None:
            del self.skipped[slot]
        else:
            self.skipped[slot] = before
        return done

    def cache(self, slot, known_text):
        """Remember the full blocks of a slot; each follows on the one before, whatever that holds."""
        skipped, before = self.skipped[slot], ()
        for i in range(max(len(known_text) - skipped, 0) // self.block_size):
            block, start = self.tables[slot][i], skipped + i * self.block_size
            if block not in self.content:
                text = before + known_text[start:start + self.block_size]
                self.content[block], self.found[text] = text, block
            before = self.content[block]

    def release(self, slot):
        """Free the blocks of a slot; then some move."""
        super().release(slot)
        del self.skipped[slot], self.reached[slot]
        for block in list(self.free):
            held = self.num_blocks - len(self.free)
            if not held / self.num_blocks > self.threshold or self.charged >= self.capacity:
                break
            if block in self.content:
                text = self.content.pop(block)
                self.found.pop(text, None)
                self.replaced += block in self.host
                self.host[block] = text, self.now
                self.charged, self.moved = self.charged + 1, self.moved + 1
                self.free.remove(block)
                self.free.append(block)

    def bring_back(self):
        """Bring back what is not found among the blocks, by number; return how many."""
        count = 0
        for number in sorted(self.host):
            text, since = self.host[number]
            if text in self.found or not self.free:
                continue
            block = self._take()
            self.content[block], self.found[text] = text, block
            self.free.append(block)
            del self.host[number]
            self.charged, self.reloaded, count = self.charged - 1, self.reloaded + 1, count + 1
            self.thrashed += self.now > 0 and self.now - since < THRASH_US
        return count
