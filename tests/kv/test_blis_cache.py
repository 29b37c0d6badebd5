"""Random use of BLIS's KV cache against its rules in plain Python."""
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.test_kv_machine import PROMPTS
from kv.texts import text_of, workload_of
from simulator.kv.blis_cache import BlisKV
from simulator.kv.content import Content

NUM_SLOTS = 4


class PoolModel:
    """Blocks 1 .. num_blocks. Source: inference-sim (BLIS) at f90a1e3a, sim/kv/cache.go.

    free : blocks nobody holds, in the order in which they will be reused. tables : slot -> its blocks.
    content : block -> the text that ends with it. found : text -> the block that was last cached with it.
    """

    def __init__(self, num_blocks, block_size):
        self.block_size = block_size
        self.free = list(range(1, num_blocks + 1))
        self.tables, self.content, self.found = {}, {}, {}

    def lookup(self, text):
        """Return the blocks of the longest known prefix of a text, its last token not counted."""
        hits = []
        for end in range(self.block_size, len(text), self.block_size):
            if text[:end] not in self.found:
                break
            hits.append(self.found[text[:end]])
        return hits

    def allocate(self, slot, text, hits=()):
        """Give a slot blocks for a text; return False, with nothing changed, if that cannot be."""
        table = [*self.tables.get(slot, []), *hits]
        revived = [block for block in hits if block in self.free]
        need = max(-(-len(text) // self.block_size) - len(table), 0)
        if need + len(revived) > len(self.free):
            return False
        num_known = len(table) if hits else len([block for block in table if block in self.content])
        for block in revived:
            self.free.remove(block)
        for _ in range(need):
            block = self.free.pop(0)
            if block in self.content:
                self.found.pop(self.content.pop(block), None)
            table.append(block)
        for i in range(num_known, len(text) // self.block_size):
            self.content[table[i]] = text[:(i + 1) * self.block_size]
            self.found[text[:(i + 1) * self.block_size]] = table[i]
        self.tables[slot] = table
        return True

    def release(self, slot):
        """Free all blocks of a slot, the last one first, behind the others."""
        blocks = self.tables.pop(slot)
        self.free += [block for block in reversed(blocks)
                      if not any(block in table for table in self.tables.values())]


def followed(log):
    """Return the hashes that are there after all changes; none comes twice, none goes that is not there."""
    there = set()
    for hash_, is_there in log.entries():
        assert (hash_ in there) != is_there
        there ^= {hash_}
    return there


@settings(max_examples=200)
@given(prompts=PROMPTS, num_blocks=st.integers(2, 20), block_size=st.integers(1, 4), data=st.data())
def test_blocks_are_found_taken_and_freed_as_the_rules_say(kv_face, prompts, num_blocks, block_size, data):
    workload = workload_of(prompts)
    kv = BlisKV(num_blocks, block_size, Content(workload))
    log, ours, model, running = kv.follow(), kv_face.Face(kv, NUM_SLOTS), PoolModel(num_blocks, block_size), {}
    for _ in range(data.draw(st.integers(1, 25))):
        slot = data.draw(st.integers(0, NUM_SLOTS - 1))
        if slot not in running:
            row = data.draw(st.integers(0, len(prompts) - 1))
            prompt = text_of(prompts, row, int(workload.requests["prompt_tokens"][row]))
            hits = model.lookup(prompt)
            assert ours.lookup(row, len(prompt)) == len(hits)
            length = min(len(hits) * block_size + data.draw(st.integers(1, 8)), len(prompt))
            fits = model.allocate(slot, prompt[:length], hits)
            assert ours.allocate(slot, row, length, hits=len(hits), known_tokens=length) == fits
            if fits:
                running[slot] = row, length
        elif data.draw(st.booleans()):
            row, length = running[slot]
            length += data.draw(st.integers(1, 6))
            fits = model.allocate(slot, text_of(prompts, row, length))
            assert ours.allocate(slot, row, length, known_tokens=length) == fits
            if fits:
                running[slot] = row, length
        else:
            model.release(slot)
            ours.release(slot)
            del running[slot]
        kv.check()
        assert kv.free_queue() == model.free
        assert [kv.block_table(slot) for slot in running] == [model.tables[slot] for slot in running]
        assert kv.num_cached_hashes == len(model.found) == len(followed(log))
