"""The twin's KV cache: blocks, reference counts, the free queue and the table of prefix hashes.

Source of the rules: vLLM 0.32.0, as ../shared/specs/vllm.md describes it (D.5, D.6, D.12).
"""
from collections import OrderedDict


def ceil_div(a, b):
    return -(-a // b)


class KvCache:
    """Blocks of `block_size` tokens; block 0 is the null block and never given out.

    free : ids of the blocks nobody holds, in the order in which they will be given out.
    holders : how many requests hold a block.
    hash_of : hash of a block's content and all that precedes it; blocks whose content is not known are absent.
    table : hash -> the blocks that carry it, oldest first. A free block stays in the table until it is given out.
    evicted : blocks that lost their hash since the list was last emptied.
    """

    def __init__(self, num_blocks, block_size, caching, unhashed_last):
        self.block_size = block_size
        self.caching = caching
        self.unhashed_last = unhashed_last          # vLLM 0.10
        self.free = OrderedDict.fromkeys(range(1, num_blocks))
        self.holders = [0] * num_blocks
        self.hash_of = {}
        self.table = {}
        self.evicted = []
        self._codes = {}                            # (parent's code, tokens of the block) -> code: no collisions

    def begin_step(self):
        """A decision is about to be made."""

    def end_step(self):
        """It is made."""

    def hit_tokens(self, hits):
        return len(hits) * self.block_size

    def align(self, request, start, tokens, largest):
        """Return how many of `tokens` behind `start` are computed at once."""
        return tokens

    def can_ever_hold(self, num_tokens):
        return ceil_div(num_tokens, self.block_size) < len(self.holders)

    def lookup(self, request):
        """Return the blocks that hold the longest known prefix; the last token is never part of it."""
        found = []
        if self.caching:
            for code in self._hashes(request, (request.num_tokens - 1) // self.block_size):
                if code not in self.table:
                    break
                found.append(next(iter(self.table[code])))
        return found

    def allocate(self, request, num_tokens, *, hits=(), lookahead=0, max_model_len, whole=False, watermark=0):
        """Give `request` the blocks for its next `num_tokens`, or change nothing and return False.

        whole : the entire request must fit, not just these tokens. watermark : blocks that must stay free.
        """
        held = len(request.blocks) + len(hits)
        available = len(self.free) - watermark - sum(not self.holders[block] for block in hits)
        computed = request.computed + len(hits) * self.block_size + num_tokens

        def missing(tokens):
            return max(ceil_div(min(tokens, max_model_len), self.block_size) - held, 0)

        needed = missing(computed + lookahead)
        if needed > available or (whole and missing(request.num_tokens) > available):
            return False
        for block in hits:
            self.free.pop(block, None)
            self.holders[block] += 1
        request.blocks += hits
        request.num_hashed += len(hits)
        request.blocks += [self._take() for _ in range(needed)]
        self.register(request, min(computed, request.num_tokens))
        return True

    def register(self, request, num_tokens):
        """Make the full blocks among the first `num_tokens` findable; at once, computed or not."""
        if not self.caching:
            return
        full = num_tokens // self.block_size
        hashes = self._hashes(request, full)
        for block, code in zip(request.blocks[request.num_hashed:full], hashes[request.num_hashed:]):
            self.hash_of[block] = code
            self.table.setdefault(code, {})[block] = None
        request.num_hashed = max(request.num_hashed, full)

    def release(self, request):
        """Take all blocks of `request` back, its tail first."""
        freed = []
        for block in reversed(request.blocks):
            self.holders[block] -= 1
            if not self.holders[block]:
                freed.append(block)
        for block in freed:
            if block in self.hash_of or self.unhashed_last:
                self.free[block] = None
        if not self.unhashed_last:
            for block in reversed([block for block in freed if block not in self.hash_of]):
                self.free[block] = None
                self.free.move_to_end(block, last=False)
        request.blocks, request.num_hashed = [], 0

    def _take(self):
        block, _ = self.free.popitem(last=False)
        self.holders[block] = 1
        code = self.hash_of.pop(block, None)
        if code is not None:
            self.evicted.append(block)
            del self.table[code][block]
            if not self.table[code]:
                del self.table[code]
        return block

    def _hashes(self, request, num_blocks):
        size = self.block_size
        for block in range(len(request.hashes), num_blocks):
            parent = request.hashes[-1] if request.hashes else None
            content = (parent, tuple(request.tokens[block * size:(block + 1) * size]))
            request.hashes.append(self._codes.setdefault(content, len(self._codes)))
        return request.hashes[:num_blocks]
