"""Work of encoders for prompts: images, and other content that arrives as embeddings."""
import msgspec
import numpy as np

from simulator.domain import records

# Of a tower: patches, and pairs of patches that attend to each other, by `towers.amounts`.
WORK = np.dtype([("patches", "i8"), ("pairs", "i8")])


class Items(msgspec.Struct, frozen=True):
    """The items of all prompts, one after the other.

    The items of one prompt are ordered by offset, and none overlap.

    begins : int64 (n + 1,), first row of each request's items in the table, and its length.
    table : structured array (m,), `records.ITEM`.
    num_contents : number of distinct contents.
    work : structured array (m,), `WORK`, of each item, 0 where it is not known; None: of none.
    ns : float64 (m,), time of encoding each item on a replica; None: they have no prices of their own.
    """

    begins: np.ndarray
    table: np.ndarray
    num_contents: int
    work: np.ndarray | None = None
    ns: np.ndarray | None = None

    @property
    def largest(self) -> int:
        """Embeddings of the largest item; 0: there are none."""
        return int(self.table["tokens"].max(initial=0))

    def tokens_of(self, n: int) -> np.ndarray:
        """Return the embeddings in each of the first `n` prompts, int64 (n,)."""
        ends = np.append(0, np.cumsum(self.table["tokens"], dtype=np.int64))
        return np.diff(ends[self.begins[:n + 1]])

    def first(self, count: int) -> "Items":
        """Return the items of the first prompts."""
        rows = self.begins[:count + 1][-1]
        return Items(self.begins[:count + 1], self.table[:rows], self.num_contents,
                     None if self.work is None else self.work[:rows])

    def twice(self) -> "Items":
        """Return the items for a table of requests in which each row occurs twice.

        A copy of all items follows the last one.
        """
        return Items(np.concatenate([self.begins, self.begins[1:] + len(self.table)]),
                     np.concatenate([self.table, self.table]), self.num_contents,
                     None if self.work is None else np.concatenate([self.work, self.work]))


def items_of(counts: np.ndarray, contents: np.ndarray, offsets: np.ndarray, tokens: np.ndarray,
             work: np.ndarray | None = None) -> Items:
    """Return the items of requests.

    counts : int64 (n,), items of each request. contents, offsets, tokens : int64 (m,), of each item; codes of any size.
    work : see Items.
    """
    table = np.empty(len(contents), records.ITEM)
    names, table["content"] = np.unique(contents, return_inverse=True)
    table["offset"], table["tokens"] = offsets, tokens
    return Items(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), table, len(names), work)
