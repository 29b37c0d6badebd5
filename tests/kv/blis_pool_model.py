"""BLIS's block pool in plain Python: where its rules differ from vLLM's, and nothing else.

Source: inference-sim (BLIS) at f90a1e3a, sim/kv/cache.go.
"""
from kv.pool_model import PoolModel


class BlisPoolModel(PoolModel):
    """All freed blocks go to the end; of two with one text the one cached last is found, until one of them is reused.

    found : text -> the block that is found.
    """

    def __init__(self, num_blocks, block_size):
        super().__init__(num_blocks, block_size, append_unhashed=True)
        self.found = {}

    def lookup(self, text):
        """Return the blocks of the longest known prefix of a text, its last token not counted."""
        hits = []
        for end in range(self.block_size, len(text), self.block_size):
            if text[:end] not in self.found:
                break
            hits.append(self.found[text[:end]])
        return hits

    def cache(self, slot, known_text):
        """Remember the full blocks of the text a slot holds, each once."""
        for i, block in enumerate(self.tables[slot][:len(known_text) // self.block_size]):
            if block not in self.content:
                text = known_text[:(i + 1) * self.block_size]
                self.content[block], self.found[text] = text, block

    def _take(self):
        block = self.free[0]
        self.found.pop(self.content.get(block), None)
        return super()._take()
