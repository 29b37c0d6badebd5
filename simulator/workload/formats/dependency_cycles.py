"""Circular waits: requests that wait for themselves, through others."""
from collections import Counter
from collections.abc import Iterable

import numpy as np


def rows_in_cycles(num_rows: int, sources: Iterable[int], targets: Iterable[int]) -> list[int]:
    """Return the rows that wait for themselves, through others.

    sources, targets : of each edge; the target waits for the source.
    """
    sources, targets = np.asarray(sources, np.int64), np.asarray(targets, np.int64)
    if np.all(sources < targets):
        return []
    followers = {}
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        followers.setdefault(source, []).append(target)
    left = _left_waiting(num_rows, Counter(targets.tolist()), followers)
    # The rest is on a circle, or behind one: rows on a circle are the rows that reach each other.
    found = {row for component in _components(left, followers) if len(component) > 1 for row in component}
    return sorted(found | set(sources[sources == targets].tolist()))


def _left_waiting(num_rows: int, waits: Counter, followers: dict) -> set[int]:
    """Return the rows that are left after all rows without waits are removed, repeatedly; `waits` is used up."""
    left = set(range(num_rows))
    free = [row for row in left if not waits[row]]
    while free:
        row = free.pop()
        left.discard(row)
        for target in followers.get(row, ()):
            waits[target] -= 1
            if waits[target] == 0:
                free.append(target)
    return left


def _components(rows: set[int], followers: dict) -> Iterable[list[int]]:
    """Yield groups of rows that reach each other (Tarjan 1972, SIAM J. Comput. 1, 146), without recursion."""
    index, lowest, path, on_path = {}, {}, [], set()
    for root in rows:
        todo = [] if root in index else [(root, iter(followers.get(root, ())))]
        while todo:
            row, targets = todo[-1]
            if row not in index:
                index[row] = lowest[row] = len(index)
                path.append(row)
                on_path.add(row)
            for target in targets:
                if target in rows and target not in index:
                    todo.append((target, iter(followers.get(target, ()))))
                    break
                if target in on_path:
                    lowest[row] = min(lowest[row], index[target])
            else:
                todo.pop()
                if todo:
                    lowest[todo[-1][0]] = min(lowest[todo[-1][0]], lowest[row])
                if lowest[row] == index[row]:
                    at = path.index(row) if row != path[-1] else len(path) - 1
                    component, path[at:] = path[at:], []
                    on_path -= set(component)
                    yield component
