"""Faults of the input, reported to users: every fault at once, one per line."""
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

MOST_NAMES = 40         # that one message lists


def on_a_line(text: str) -> str:
    """Return text with escapes for characters that break or turn a line."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


class InputErrors(ValueError):
    """The input cannot be used.

    Parameters
    ----------
    faults : iterable of str
        One line each: `file: key.path: fault`, or `file:line: column: fault`.
    """

    def __init__(self, faults: Iterable[str]):
        self.faults = tuple(faults)
        super().__init__("\n".join(map(on_a_line, self.faults)))

    def __reduce__(self):
        return InputErrors, (self.faults,)


class MissingExtra(InputErrors):
    """An optional part of the package is not installed; all else may be well.

    Parameters
    ----------
    faults : iterable of str
        What needs it, and how to install it.
    """

    def __reduce__(self):
        return MissingExtra, (self.faults,)


class BadAnswer(ValueError):
    """A policy answered what its base does not allow.

    Parameters
    ----------
    policy : the object that answered.
    method : of it, as its base names it.
    expected : the answers that are allowed.
    """

    def __init__(self, policy: Any, method: str, expected: str, found: Any):
        self.answered = type(policy)
        super().__init__(f"{self.answered.__name__}.{method}: expected {expected}, found {found}")


class OutputError(OSError):
    """Results cannot be written; the program is not to blame.

    Parameters
    ----------
    place : path or object that cannot be written, as named in messages.
    cause : the system's error.
    """

    ERRNOS = frozenset(getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "EROFS")
                       if hasattr(errno, name))     # not every system has quotas
    OF_PATHS = frozenset((errno.EACCES, errno.EPERM, errno.ENAMETOOLONG))       # the path that was given is to blame

    def __init__(self, place: object, cause: OSError):
        super().__init__(cause.errno, os.strerror(cause.errno))
        self.place = place

    def __str__(self):
        return f"{self.place}: cannot be written: {self.strerror}"

    def __reduce__(self):
        return OutputError, (self.place, OSError(self.errno, self.strerror))


class KeyFault(str):
    """A fault of a key, `key.path: fault`, from code that does not know the file."""


@contextmanager
def faults_of(file: object) -> Iterator[None]:
    """Name the experiment file in the KeyFaults raised inside the block."""
    try:
        yield
    except InputErrors as errors:
        named = [f"{file}: {fault}" if isinstance(fault, KeyFault) else fault for fault in errors.faults]
        raise InputErrors(named) from None


def collect_faults(*steps: Callable[[], Any]) -> list[Any]:
    """Return what each step returns, or raise the InputErrors of all, each once."""
    results, faults = [], []
    for step in steps:
        try:
            results.append(step())
        except InputErrors as errors:
            faults += errors.faults
    if faults:
        raise InputErrors(dict.fromkeys(faults))
    return results


def number_of(count: int, thing: str) -> str:
    """Return a number of things in words: 1 row, 2 rows.

    >>> number_of(1, "id"), number_of(0, "id")
    ('1 id', '0 ids')
    """
    return f"{count} {thing}{'' if count == 1 else 's'}"


def nearest(name: str, valid: Iterable[str]) -> str:
    """End a message about a wrong `name` with the nearest valid one, or nothing."""
    from difflib import get_close_matches  # only a refused input pays for it

    names, asked = [str(each) for each in valid], name[:200]
    longer = [each for each in names if asked and each.startswith((f"{asked}-", f"{asked}."))]       # h200-sxm
    close = get_close_matches(asked, longer, n=1, cutoff=0) or get_close_matches(asked, names, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """End a message about an unknown `name` with the nearest, or the first 40.

    >>> did_you_mean("max_num_seq", ["max_num_seqs", "policy"])
    '; did you mean max_num_seqs?'
    >>> did_you_mean("x", ["policy", "seed"])
    '; valid: policy, seed'
    """
    valid = sorted(valid)
    more = f" and {len(valid) - MOST_NAMES} more" if len(valid) > MOST_NAMES else ""
    return nearest(name, valid) or (
        f"; valid: {', '.join(valid[:MOST_NAMES])}{more}" if valid else "; none is valid here")
