"""Collector of an input file's faults, which refuses the file once, with all faults."""
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

    def __bool__(self):
        return self._count > 0

    def add(self, line: int, text: str) -> None:
        """Add a fault of a line (from 1; 0: of the file)."""
        self._count += 1
        if self._count <= MAX_LISTED:
            self._messages.append(f"{self.path}:{line}: {text}" if line else f"{self.path}: {text}")

    def add_cell(self, line: int, column: str, expected: str, found: bytes | str) -> None:
        """Add a fault of a cell: the expected content, and the content found."""
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


class LeftOut(Faults):
    """Faults of rows that are left out; faults of the file as a whole still refuse it.

    first_line : the line on which rows begin.
    lines : the fault of each row that cannot be read, by line.
    """

    def __init__(self, path: str, first_line: int):
        super().__init__(path)
        self.first_line, self.lines = first_line, {}

    def add(self, line: int, text: str) -> None:
        """Add a fault; if it is of a row, note it."""
        if line < self.first_line:
            super().add(line, text)
        else:
            self.lines[line] = text

    def forget_since(self, count: int) -> None:
        """Keep all: the last fault of a row is the one in the note."""

    def note(self, total: int) -> tuple[str, ...]:
        """Return a note with the number of rows left out; empty if there are none.

        Raises
        ------
        InputErrors
            All rows are left out.
        """
        if not self.lines:
            return ()
        first = min(self.lines)
        first_fault = f"the first: {self.path}:{first}: {self.lines[first]}"
        if len(self.lines) >= total:
            raise InputErrors([f"{self.path}: no row can be read; {first_fault}"])
        rows = "rows" if len(self.lines) > 1 else "row"
        return (f"{self.path}: {len(self.lines)} {rows} of {total} cannot be read and were left out; {first_fault}.",)


def quoted(found: bytes | str) -> str:
    """Return a cell in the form for messages: quoted, escaped, cut when long."""
    text = found.decode("utf-8", "backslashreplace") if isinstance(found, bytes) else found
    if len(text) > MAX_FOUND_CHARACTERS:
        text = text[:MAX_FOUND_CHARACTERS] + "..."
    return msgspec.json.encode(text).decode()
