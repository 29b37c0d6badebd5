"""Collect what is wrong with an input file, then refuse it once, with every fault."""
import msgspec

from simulator.errors import InputErrors

MAX_LISTED = 20
MAX_FOUND_CHARACTERS = 60


class Faults:
    """The faults of one file: the first `MAX_LISTED` in full, the rest as a number."""

    def __init__(self, path: str):
        self.path = str(path)
        self._messages = []
        self._count = 0

    def add(self, line: int, text: str) -> None:
        """Add a fault of a line (from 1; 0: of the file)."""
        self._count += 1
        if self._count <= MAX_LISTED:
            self._messages.append(f"{self.path}:{line}: {text}" if line else f"{self.path}: {text}")

    def add_cell(self, line: int, column: str, expected: str, found: bytes | str) -> None:
        """Add a fault of a cell: what was expected in it, and what it holds."""
        self.add(line, f"{column}: expected {expected}, found {quoted(found)}")

    def forget_since(self, count: int) -> None:
        """Drop all but the first `count` faults: another one explains them."""
        self._count = count
        del self._messages[count:]

    def raise_if_any(self) -> None:
        """Raise InputErrors when there is a fault."""
        if not self._count:
            return
        rest = self._count - len(self._messages)
        tail = [f"{self.path}: {rest} more fault{'s' if rest > 1 else ''} like these"] if rest else []
        raise InputErrors(self._messages + tail)


def quoted(found: bytes | str) -> str:
    """Return a cell as messages show it: quoted, escaped, cut when long."""
    text = found.decode("utf-8", "backslashreplace") if isinstance(found, bytes) else found
    if len(text) > MAX_FOUND_CHARACTERS:
        text = text[:MAX_FOUND_CHARACTERS] + "..."
    return msgspec.json.encode(text).decode()
