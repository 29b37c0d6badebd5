"""Work of encoders for prompts: images, and other content that arrives as embeddings."""
import msgspec
import numpy as np

from simulator.domain import records


class Items(msgspec.Struct, frozen=True):
    """The items of all prompts, one after the other.

    The items of one prompt are ordered by offset, and none overlap.

    begins : int64 (n + 1,), first row of each request's items in the table, and its length.
    table : structured array (m,), `records.ITEM`.
    num_contents : number of distinct contents.
    """

    begins: np.ndarray
    table: np.ndarray
    num_contents: int

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
        return Items(self.begins[:count + 1], self.table[:self.begins[:count + 1][-1]], self.num_contents)

    def twice(self) -> "Items":
        """Return the items for a table of requests in which each row occurs twice.

        A copy of all items follows the last one.
        """
        return Items(np.concatenate([self.begins, self.begins[1:] + len(self.table)]),
                     np.concatenate([self.table, self.table]), self.num_contents)


def items_of(counts: np.ndarray, contents: np.ndarray, offsets: np.ndarray, tokens: np.ndarray) -> Items:
    """Return the items of requests.

    counts : int64 (n,), items of each request. contents, offsets, tokens : int64 (m,), of each item; codes of any size.
    """
    table = np.empty(len(contents), records.ITEM)
    names, table["content"] = np.unique(contents, return_inverse=True)
    table["offset"], table["tokens"] = offsets, tokens
    return Items(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), table, len(names))
