"""The twin's KV cache of models whose layers need different parts of a text: a block table for each group of layers.

Source of the rules: vLLM 0.32.0, as ../shared/specs/vllm_more.md describes it (I.1 to I.6). What the pool does with
blocks is as in kv_cache.py.
"""
from dataclasses import dataclass
from math import lcm

from oracle.kv_cache import KvCache, ceil_div


@dataclass
class Hits:
    """What a lookup found: blocks of each group, 0 for null ones, and how many tokens they hold."""

    blocks: list
    tokens: int
    junction: int


class GroupedKvCache(KvCache):
    """`layer_groups`: LayerGroups of simulator.domain. `in_flight`: tokens scheduled and not back, at most."""

    def __init__(self, num_blocks, layer_groups, caching, max_model_len, in_flight):
        self.groups = layer_groups.groups
        self.interval, self.alignment = layer_groups.retention_interval, layer_groups.chunk_alignment
        self.max_model_len, self.in_flight = max_model_len, in_flight
        super().__init__(num_blocks, lcm(*(group.block_size for group in self.groups)), caching, unhashed_last=False)
        self.unit, self.is_fine = layer_groups.hash_unit, layer_groups.hits_are_fine
        self.is_inside = caching and layer_groups.hits_end_inside
        self.hit_unit = self.unit if self.is_inside else self.block_size
        self.new_states = set()                     # hashed since the step began
        self.further_of = {}                        # block -> codes beside that in `hash_of`
        self.copied = []                            # (group, block, its copy) in the step

    def begin_step(self):
        self.new_states = set()

    def end_step(self):
        self._put_back([block for _, *both in sorted(self.copied, key=lambda copy: copy[0]) for block in both])
        self.copied = []

    def hit_tokens(self, hits):
        return hits.tokens if hits else 0

    def can_ever_hold(self, num_tokens):
        return sum(1 if group.aligned else self._whole(group, ceil_div(num_tokens, group.block_size))
                   for group in self.groups) < len(self.holders)

    # ---- what a kind needs

    def outdated(self, group, tokens):
        """Leading tokens that no query from `tokens` on needs."""
        return {"full_attention": 0, "sliding_attention": max(0, tokens - group.window + 1),
                "chunked_attention": tokens // max(group.window, 1) * group.window,
                "linear_attention": max(0, tokens - 1)}[group.kind]

    def _whole(self, group, blocks):
        """Of the blocks of a text, those that a check counts that it fits whole."""
        reach = min(group.window + self.in_flight - (group.kind == "sliding_attention"), self.max_model_len)
        if group.kind == "sliding_attention":
            return min(blocks, ceil_div(reach, group.block_size) + 1)
        return min(blocks, ceil_div(reach, group.block_size)) if group.kind == "chunked_attention" else blocks

    def _is_kept(self, group, index, request):
        """Say whether block `index` enters the prefix cache."""
        if group.kind in ("full_attention", "chunked_attention"):
            return True
        size = group.block_size
        tail = 1 if group.kind == "linear_attention" else ceil_div(group.window - 1, size)
        if self.interval is None and group.kind == "linear_attention":
            return True
        if self.interval != 0:
            segment = (self.hit_unit if self.interval is None else self.interval) // size
            if tail >= segment or index % segment >= segment - tail:
                return True
        ends = [] if self.interval is None else [request.num_prompt - 1, request.junction]
        return any(end // self.hit_unit * self.hit_unit // size - tail <= index
                   < end // self.hit_unit * self.hit_unit // size for end in ends)

    # ---- the prefix cache

    def _code(self, number, request, end):
        """Return the code of the block of a group in which the first `end` tokens end."""
        return self._codes.setdefault((number, tuple(request.tokens[:end])), len(self._codes))

    def _found(self, numbers, request, end):
        """Return a block for each of these groups, or None."""
        codes = [self._code(number, request, end) for number in numbers]
        return [next(iter(self.table[code])) for code in codes] if all(code in self.table for code in codes) else None

    def lookup(self, request):
        request.junction = 0
        if not self.caching or request.num_tokens < 2:
            return None
        most, alike = request.num_tokens - 1, {}
        for number, group in enumerate(self.groups):
            alike.setdefault(group, []).append(number)
        kinds = sorted(alike.items(), key=lambda kind: kind[0].kind != "full_attention")
        blocks, found, longest = [[] for _ in self.groups], most, 0
        fulls = {}
        while True:
            shorter = found
            for group, numbers in kinds:
                if group in fulls:
                    shorter = min(shorter, fulls[group])
                    continue
                shorter = self._find(group, numbers, request, shorter, blocks)
                longest = max(longest, shorter)
                if group.kind == "full_attention":
                    fulls[group] = shorter
            if shorter >= found or len(self.groups) == 1:
                found = shorter
                break
            found = shorter
            if len(kinds) == 2 and len(fulls) == 1:
                break
        for number, group in enumerate(self.groups):
            if group.kind == "full_attention":
                del blocks[number][ceil_div(found, group.block_size):]
        if len(self.groups) > 1 and longest > found:
            request.junction = longest
        return Hits(blocks, found, request.junction)

    def _find(self, group, numbers, request, most, blocks):
        """Find the longest hit of at most `most` tokens; fill in `blocks` of its groups, return its tokens."""
        size, count = group.block_size, most // group.block_size
        there = [self._found(numbers, request, (index + 1) * size) for index in range(count)]
        if self.is_inside and group.kind in ("full_attention", "linear_attention"):
            return self._find_inside(group, numbers, request, most, there, blocks)
        find = {"full_attention": self._left_to_right, "chunked_attention": self._chunk,
                "sliding_attention": self._window, "linear_attention": self._state}[group.kind]
        first, end = find(group, there, most)
        for place, number in enumerate(numbers):
            blocks[number] = [0] * first + [there[index][place] for index in range(first, end)]
        return end * size // self.block_size * self.block_size if group.kind == "full_attention" else end * size

    def _find_inside(self, group, numbers, request, most, there, blocks):
        size, is_full = group.block_size, group.kind == "full_attention"
        whole = self._left_to_right(group, there, most)[1] if is_full else 0
        for place, number in enumerate(numbers):
            blocks[number] = [there[index][place] for index in range(whole)]
        last = min(most // self.unit * self.unit, whole * size + size - self.unit if is_full else most)
        for end in range(last, whole * size, -self.unit):
            found = self._found(numbers, request, end)
            if found is not None:
                for place, number in enumerate(numbers):
                    blocks[number] += [0] * ((end - 1) // size - whole) + [found[place]]
                return end
        return whole * size

    def _left_to_right(self, group, there, most):
        return 0, next((index for index, found in enumerate(there) if found is None), len(there))

    def _chunk(self, group, there, most):
        first = self.outdated(group, most) // group.block_size
        return first, next((index for index in range(first, len(there)) if there[index] is None), len(there))

    def _is_end(self, group, index):
        return (index + 1) * group.block_size % self.hit_unit == 0

    def _state(self, group, there, most):
        ends = [index for index, found in enumerate(there) if found is not None and self._is_end(group, index)]
        return (ends[-1], ends[-1] + 1) if ends else (0, 0)

    def _window(self, group, there, most):
        needed, run = ceil_div(group.window - 1, group.block_size), 0
        for index in reversed(range(len(there))):
            if there[index] is None or (run == 0 and not self._is_end(group, index)):
                run = 0
                continue
            run += 1
            if run >= needed:
                return index, index + run
        while run * group.block_size % self.hit_unit:
            run -= 1
        return 0, run

    def register(self, request, num_tokens):
        if not self.caching:
            return
        if len(self.groups) > 1 and not self.is_fine:
            num_tokens -= num_tokens % self.block_size
        for number, group in enumerate(self.groups):
            table, end = request.tables[number], num_tokens // group.block_size
            for index in range(request.hashed_of[number], end):
                if table[index] and self._is_kept(group, index, request):
                    code = self._code(number, request, (index + 1) * group.block_size)
                    self._forget_codes(table[index])
                    self._also_list(table[index], code)
                    if group.kind == "linear_attention":
                        self.new_states.add(code)
            request.hashed_of[number] = max(request.hashed_of[number], end)
            self._register_tail(request, number, group, num_tokens)

    def _register_tail(self, request, number, group, num_tokens):
        """Make the last place of the prompt where a hit may end findable, where it is inside a block."""
        end, table, size = (request.num_prompt - 1) // self.unit * self.unit, request.tables[number], group.block_size
        place = (end - 1) // size
        is_tail = num_tokens == end if group.aligned else group.kind == "full_attention" and end % size
        if not (is_tail and 0 < end <= num_tokens and place < len(table) and table[place]):
            return
        code = self._code(number, request, end)
        self._also_list(table[place], code)
        if group.aligned:
            self.new_states.add(code)
            if end % size:
                request.copies[number] = (place, True)

    def _also_list(self, block, code):
        if block in self.table.setdefault(code, {}):
            return
        self.table[code][block] = None
        if self.hash_of.setdefault(block, code) != code:
            self.further_of.setdefault(block, []).append(code)

    def _forget_codes(self, block):
        codes = [self.hash_of.pop(block), *self.further_of.pop(block, ())] if block in self.hash_of else []
        for code in codes:
            del self.table[code][block]
            if not self.table[code]:
                del self.table[code]
        return codes

    # ---- allocation

    def allocate(self, request, num_tokens, *, hits=None, lookahead=0, max_model_len, whole=False, watermark=0):
        if not hasattr(request, "tables"):
            self._forget(request)
        computed = request.computed + self.hit_tokens(hits)
        available = len(self.free) - watermark
        if whole and self._needed(request, hits, request.num_tokens, True) > available:
            return False
        self._slide(request, max(0, computed - request.in_flight))
        slots = min(computed + num_tokens + lookahead, max_model_len)
        if self._needed(request, hits, slots, False) > len(self.free) - watermark:
            return False
        if hits:
            for number, blocks in enumerate(hits.blocks):
                for block in filter(None, blocks):
                    self.free.pop(block, None)
                    self.holders[block] += 1
                request.tables[number] = list(blocks)
                request.hashed_of[number] = hits.tokens // self.groups[number].block_size
                if hits.tokens % self.groups[number].block_size:
                    request.copies[number] = (len(blocks) - 1, False)
        for number, group in enumerate(self.groups):
            self._extend(request, number, group, slots)
        request.blocks = request.tables if len(self.groups) > 1 else request.tables[0]
        self.register(request, min(computed + num_tokens, request.num_tokens))
        return True

    def _needed(self, request, hits, slots, is_whole):
        needed = 0
        for number, group in enumerate(self.groups):
            found = hits.blocks[number] if hits else []
            if found and self.hash_of.get(found[-1]) in self.new_states:
                return float("inf")
            end = ceil_div(min(slots, self.max_model_len), group.block_size)
            missing = max((self._whole(group, end) if is_whole else end) - len(found) - len(request.tables[number]), 0)
            needed += min(missing, 1) if group.aligned else missing
            needed += number in request.copies or bool(found and hits.tokens % group.block_size)
            needed += sum(block != 0 and not self.holders[block] for block in found)
        return needed

    def _extend(self, request, number, group, slots):
        table, end = request.tables[number], ceil_div(slots, group.block_size)
        if number in request.copies:
            self._copy(number, table, *request.copies.pop(number))
            request.last_of[number] = len(table) - 1 if group.aligned else -1
        if group.aligned and end > len(table):
            request.last_of[number] = len(table) - 1
            table += [0] * (end - 1 - len(table))
        table += [self._take() for _ in range(end - len(table))]

    def _copy(self, number, table, place, copy_is_found):
        """Copy a block before it is written into; both are held to the end of the step."""
        block, copy = table[place], self._take()
        if copy_is_found:
            for code in self._forget_codes(block):
                self._also_list(copy, code)
            self.new_states.add(self.hash_of[copy])
            self.holders[block] += 1
        else:
            table[place] = copy
            self.holders[copy] += 1
        self.copied.append((number, block, copy))

    def _take(self):
        block, _ = self.free.popitem(last=False)
        self.holders[block] = 1
        if self._forget_codes(block):
            self.evicted.append(block)
        return block

    def _slide(self, request, settled):
        """Give up what no later token needs."""
        for number, group in enumerate(self.groups):
            table = request.tables[number]
            end = min(self.outdated(group, settled) // group.block_size, len(table))
            self._give_up(table, [index for index in reversed(range(end)) if table[index]])
            last = request.last_of[number]
            if 0 <= last < ceil_div(settled, group.block_size) - 1 and table[last]:
                self._give_up(table, [last])

    def _give_up(self, table, indices):
        freed = [table[index] for index in indices]
        for index in indices:
            table[index] = 0
        self._put_back(freed)

    def _put_back(self, blocks):
        freed = []
        for block in blocks:
            self.holders[block] -= 1
            freed += [block] * (not self.holders[block])
        for block in freed:
            if block in self.hash_of:
                self.free[block] = None
        for block in reversed([block for block in freed if block not in self.hash_of]):
            self.free[block] = None
            self.free.move_to_end(block, last=False)

    def release(self, request):
        for table in getattr(request, "tables", ()):
            self._give_up(table, [index for index in reversed(range(len(table))) if table[index]])
        self._forget(request)

    def _forget(self, request):
        request.tables = [[] for _ in self.groups]
        request.hashed_of, request.last_of = [0] * len(self.groups), [-1] * len(self.groups)
        request.blocks, request.copies = [], {}

    # ---- chunks

    def align(self, request, start, tokens, largest):
        """Return how many of `tokens` behind `start` are computed at once."""
        size, behind = self.alignment, max(request.num_prompt, request.num_tokens - 1)
        if not size or start >= behind or tokens <= 0:
            return tokens
        end = start + tokens
        if end < behind and (end // size * size > start or size <= largest):
            end = end // size * size
        stops = [(request.num_tokens - 1) // size * size]
        tail = (request.num_prompt - 1) // self.unit * self.unit
        if self.is_inside and stops[0] < tail < request.num_prompt:
            stops.append(tail)
        if start % size:
            stops.append((start // size + 1) * size)
        if start < request.junction < end:
            stops.append(start + (request.junction - start) // size * size)
        return max(min([stop for stop in stops if start < stop < end], default=end) - start, 0)
