"""vLLM's groups of layers with pages of several sizes, which lie side by side in a block of the pool.

Source: vLLM 0.33, vllm/v1/core/kv_cache_planning.py, _get_packed_kv_cache_groups and _approximate_gcd.
"""
from collections.abc import Sequence

from simulator.domain.kv_pages import Page

STATES = ("linear_attention", "ring")       # kinds with one page a sequence, of any length


class _Bucket:
    """Pages of one kind, window and block size.

    sizes : pages by their bytes, in the order of the first. is_balanced : as many pages of each size.
    """

    def __init__(self, pages: list[Page]):
        self.pages = pages
        self.sizes: dict[float, list[Page]] = {}
        for page in pages:
            self.sizes.setdefault(page.num_bytes, []).append(page)
        self.repeats = max(map(len, self.sizes.values()))
        self.is_balanced = {len(each) for each in self.sizes.values()} == {self.repeats}
        self.kind = pages[0].kind

    def widest_bytes(self, num_groups: int) -> float:
        """Return the bytes of the largest of so many groups."""
        return sum(-(-len(each) // num_groups) * num_bytes for num_bytes, each in self.sizes.items())

    def groups(self, num_groups: int) -> list[tuple[Page, ...]]:
        """Return so many groups, which take turns; one group has all pages in order."""
        if num_groups == 1:
            return [tuple(self.pages)]
        repeats = list(zip(*self.sizes.values(), strict=True))
        return [tuple(page for repeat in repeats[i::num_groups] for page in repeat) for i in range(num_groups)]


def packed_groups(pages: Sequence[Page]) -> list[tuple[Page, ...]]:
    """Return the groups of pages of at least two sizes.

    Buckets that mix sizes stay whole, and the largest sets how often the pattern of layers repeats in a group; larger
    buckets of one size are cut towards it. States and rings are cut so that they fit a block that others need anyway.
    """
    found: dict[tuple, list[Page]] = {}
    for page in pages:
        # States of several sizes are buckets of their own.
        own_size = page.num_bytes if page.kind == "linear_attention" else None
        found.setdefault((page.kind, page.window, page.block_size, own_size), []).append(page)
    buckets = [_Bucket(each) for each in found.values()]
    least = max((each.repeats for each in buckets if each.is_balanced and len(each.sizes) > 1), default=0)
    repeats = _nearest_divisor([each.repeats for each in buckets if each.is_balanced], least) if least else None

    def count(bucket: _Bucket) -> int:
        return -(-bucket.repeats // repeats) if bucket.is_balanced and repeats else 1

    def is_state(bucket: _Bucket) -> bool:
        return bucket.kind in STATES or (repeats is None and bucket.kind == "sliding_attention")

    needed = max(each.widest_bytes(len(each.pages) if is_state(each) else count(each)) for each in buckets)
    groups = []
    for each in buckets:
        number = count(each)
        if is_state(each):
            fitting = max(int(needed // each.pages[0].num_bytes), 1)
            number = max(number, -(-len(each.pages) // fitting))
        groups += each.groups(number)
    return groups


def _nearest_divisor(counts: Sequence[int], least: int) -> int:
    """Return the number, at least `least`, that wastes least where counts are rounded up to its multiples.

    The largest of several.
    """
    wasted = {number: sum(-count % number for count in counts) for number in range(least, max(counts) + 1)}
    return max(wasted, key=lambda number: (-wasted[number], number), default=least)
