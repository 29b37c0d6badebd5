"""What is wrong with the input, told to people: every fault at once, one per line."""
from collections.abc import Iterable


class InputErrors(ValueError):
    """The input cannot be used.

    Parameters
    ----------
    faults : iterable of str
        One line each: `file: key.path: what is wrong`, or `file:line: column: what is wrong`.
    """

    def __init__(self, faults: Iterable[str]):
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))

    def __reduce__(self):
        return InputErrors, (self.faults,)


def nearest(name: str, valid: Iterable[str]) -> str:
    """End a message about a wrong `name` with the nearest valid one, or nothing."""
    from difflib import get_close_matches  # only a refused input pays for it

    close = get_close_matches(name[:200], [str(each) for each in valid], n=1)
    return f"; did you mean {close[0]}?" if close else ""


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """End a message about an unknown `name` with the nearest valid one, or all.

    >>> did_you_mean("max_num_seq", ["max_num_seqs", "policy"])
    '; did you mean max_num_seqs?'
    >>> did_you_mean("x", ["policy", "seed"])
    '; valid: policy, seed'
    """
    valid = sorted(valid)
    return nearest(name, valid) or (f"; valid: {', '.join(valid)}" if valid else "; none is valid here")
