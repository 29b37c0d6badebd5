"""vLLM's block pool in plain Python: the rules and nothing else.

Source: vLLM 0.32.0, vllm/v1/core/{block_pool,kv_cache_manager}.py, one group of full-attention layers. A block's
content is the very text it ends, from the first token on, so that no two prefixes are ever taken for each other.
"""


class PoolModel:
    """Blocks 1 .. num_blocks; block 0, the null block, is in none of these lists.

    free : blocks nobody holds, in the order in which they will be reused.
    tables : slot -> its blocks.
    content : block -> the text that ends with it, in order of insertion; a block whose text is not known is absent.
    evicted : blocks that lost their content, in order.
    """

    def __init__(self, num_blocks, block_size, caching=True, append_unhashed=False):
        self.block_size = block_size
        self.caching = caching
        self.append_unhashed = append_unhashed
        self.free = list(range(1, num_blocks + 1))
        self.tables = {}
        self.content = {}
        self.evicted = []

    def num_owners(self, block):
        return sum(table.count(block) for table in self.tables.values())

    def blocks_for(self, num_tokens):
        return -(-num_tokens // self.block_size)

    def lookup(self, text):
        """Return the blocks of the longest known prefix of a text, its last token not counted."""
        found = []
        for end in range(self.block_size, len(text) if self.caching else 0, self.block_size):
            holders = [block for block, content in self.content.items() if content == text[:end]]
            if not holders:
                break
            found.append(holders[0])            # the first inserted
        return found

    def allocate(self, slot, known_text, slots, *, hits=(), full_tokens=0, watermark=0):
        """Give a slot blocks for its first `slots` tokens; return False, with nothing changed, if that cannot be."""
        table = self.tables.get(slot, [])
        revived = [block for block in hits if block in self.free]
        have = len(table) + len(hits)
        need = max(self.blocks_for(slots) - have, 0)
        if max(need, self.blocks_for(full_tokens) - have) + len(revived) + watermark > len(self.free):
            return False
        for block in revived:
            self.free.remove(block)
        self.tables[slot] = [*table, *hits, *(self._take() for _ in range(need))]
        self.cache(slot, known_text)
        return True

    def cache(self, slot, known_text):
        """Remember the full blocks of the text a slot holds."""
        for i, block in enumerate(self.tables[slot][:len(known_text) // self.block_size if self.caching else 0]):
            if block not in self.content:
                self.content[block] = known_text[:(i + 1) * self.block_size]

    def release(self, slot):
        """Free all blocks of a slot, tail first: those without content to be reused first, the others last."""
        freed = [block for block in reversed(self.tables.pop(slot)) if self.num_owners(block) == 0]
        unknown = [block for block in freed if block not in self.content]
        known = [block for block in freed if block in self.content]
        self.free = self.free + freed if self.append_unhashed else unknown + self.free + known

    def _take(self):
        block = self.free.pop(0)
        if self.content.pop(block, None) is not None:
            self.evicted.append(block)
        return block
