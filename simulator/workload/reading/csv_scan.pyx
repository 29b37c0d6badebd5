"""A scanner of CSV files into int64 columns: one pass over the bytes, no Python object per number.

Blank lines, as pandas and Excel write at the end, are no rows.
Cells are separated by commas, rows by a line feed or carriage return and line feed; a cell in double quotes may hold
both, and a quote doubled (RFC 4180).
Text is interned: a column of text becomes codes into a list of distinct texts.
"""
from libc.stdint cimport int64_t
from libc.string cimport memchr

from simulator.workload.reading.numbers cimport (
    PARSED, TOO_LARGE, Parse, bytes_t, parse_integer, parse_seconds, parse_timestamp)

from typing import NamedTuple

import numpy as np

from simulator.workload.limits import MAX_TOKENS, MISSING

cpdef enum Kind:                    # the content of a column's cells
    IGNORE                          # anything
    INTEGER
    SECONDS                         # scanned as ns
    TIMESTAMP                       # calendar time, scanned as ns since 1970
    TEXT                            # scanned as codes into a list of distinct texts
    IDENTITY                        # integers, or else `Scan.ids_are_text` is set: the column is to be scanned as TEXT
    MILLISECONDS                    # scanned as ns, like the next two kinds
    MICROSECONDS
    NANOSECONDS
    PROMPT                          # stream:tokens/stream:tokens..., scanned as the number of segments

_UNITS = {MILLISECONDS: "milliseconds", MICROSECONDS: "microseconds", NANOSECONDS: "nanoseconds"}
BAD_QUOTES_MESSAGE = "a cell in quotes does not end, or text follows it; inside, quotes are doubled"

cdef int64_t _MISSING = MISSING
cdef int64_t _MAX_TOKENS = MAX_TOKENS
cdef enum Ending:                   # the character or state after a cell
    COMMA, END_OF_ROW, BAD_QUOTES


class Column(NamedTuple):
    """The range of a column's cells; times are bounded in ns."""

    kind: int
    low: int = 0
    high: int = MAX_TOKENS
    required: bool = False          # no cell may be empty


class Scan(NamedTuple):
    """A scanned file; rows in file order."""

    values: dict                    # column name -> int64 (n,): numbers, codes of texts, or number of prompt segments
    texts: dict                     # column name -> list of distinct texts (of a prompt column: of its streams)
    segments: tuple                 # of all prompts, in order: stream codes int64 (m,), token counts int64 (m,)
    lines: np.ndarray               # int64 (n,): the line on which each row begins, from 1
    ids_are_text: bool              # a cell of the IDENTITY column is not an integer; the rows end there


cdef struct Cell:
    bytes_t start
    bytes_t stop
    bint has_doubled_quotes         # each pair of quotes inside means one quote


cdef class Scanner:
    """Read the header, then the rows of a CSV text.

    Parameters
    ----------
    data : bytes
        UTF-8 text without NUL characters, not empty.
    faults : simulator.workload.reading.faults.Faults
        Collects faults; it is empty before the first rows, and values are meaningful only if it stays empty.
    """

    cdef bytes _data                # owns the memory of the pointers
    cdef object _faults
    cdef bytes_t _at
    cdef bytes_t _stop
    cdef int64_t _line              # of the next cell, from 1
    cdef list _names, _interned     # per column: its name; dict text -> code, or None
    cdef int64_t[:, ::1] _spec      # per column: kind, low, high, required
    cdef int64_t[:, ::1] _values    # per column, then per row
    cdef int64_t[:, ::1] _segments  # streams, tokens
    cdef Py_ssize_t _num_segments
    cdef Py_ssize_t _num_faults     # in rows
    cdef bint _ids_are_text

    def __init__(self, bytes data, faults):
        self._faults = faults
        self._line = 1
        self.feed(data)
        self._at += 3 if data.startswith(b"\xef\xbb\xbf") else 0

    def count_from(self, int64_t line):
        """Set the number of the next line; used if the header is not part of the file."""
        self._line = line

    def feed(self, bytes data):
        """Continue with the next piece of the text, which begins with a new row."""
        self._data = data
        self._at = <bytes_t><const char*>data
        self._stop = self._at + len(data)
        if self._stop > self._at and (self._stop - 1)[0] == c'\r':
            self._stop -= 1             # of a last line without its line feed

    @property
    def lines_before(self):
        """The number of lines before the next row."""
        return self._line - 1

    def header(self):
        """Return the names in the first line, spaces around them removed."""
        cdef Cell cell
        cdef Ending ending = COMMA
        names = []
        while ending == COMMA:
            ending = self._next_cell(&cell)
            if ending == BAD_QUOTES:
                self._faults.add(1, BAD_QUOTES_MESSAGE)
            names.append(_text(&cell, cell.start, cell.stop).decode().strip())
        self._names = names
        return names

    def rows(self, columns):
        """Return the rows of the text, or of the last piece fed, as a `Scan`; `texts` covers all pieces.

        Parameters
        ----------
        columns : list of Column
            One for each name of the header; at most one is a PROMPT.
        """
        cdef Py_ssize_t row = 0, capacity = self._data.count(b"\n") + 1
        cdef int64_t[::1] lines
        kinds = [column.kind for column in columns]
        self._spec = np.array(columns, dtype=np.int64).reshape(len(columns), 4)
        self._values = np.empty((len(columns), capacity), dtype=np.int64)
        self._segments = np.empty((2, self._data.count(b":") if PROMPT in kinds else 0), dtype=np.int64)
        if self._interned is None:
            self._interned = [{} if kind in (TEXT, PROMPT) else None for kind in kinds]
        self._num_segments = 0
        line_array = np.empty(capacity, dtype=np.int64)
        lines = line_array
        while self._skip_blank_lines() and not self._ids_are_text:
            lines[row] = self._line
            self._read_row(row)
            row += 1
        return Scan(
            values={name: np.asarray(self._values)[column, :row]
                    for column, name in enumerate(self._names) if kinds[column] != IGNORE},
            texts={name: [text.decode() for text in self._interned[column]]
                   for column, name in enumerate(self._names) if self._interned[column] is not None},
            segments=tuple(np.asarray(self._segments)[:, :self._num_segments]),
            lines=line_array[:row],
            ids_are_text=self._ids_are_text)

    cdef bint _skip_blank_lines(self) noexcept nogil:
        """Skip lines that are empty, or have spaces alone; return whether there is a row."""
        cdef bytes_t at = self._at
        while at < self._stop:
            if at[0] == c'\n':
                self._at = at + 1
                self._line += 1
            elif at[0] != c'\r' and at[0] != c' ' and at[0] != c'\t':
                return True
            at += 1
        self._at = self._stop
        return False

    cdef Ending _next_cell(self, Cell* cell) noexcept nogil:
        """Read the next cell; return its ending."""
        cdef bytes_t at = self._at
        if at < self._stop and at[0] == c'"':
            return self._next_quoted_cell(cell)
        cell.has_doubled_quotes = False
        cell.start = at
        while at < self._stop and at[0] != c',' and at[0] != c'\n':
            at += 1
        cell.stop = at
        if at < self._stop and at[0] == c'\n' and at > cell.start and (at - 1)[0] == c'\r':
            cell.stop -= 1
        return self._step_over(at)

    cdef Ending _next_quoted_cell(self, Cell* cell) noexcept nogil:
        cdef bytes_t at = self._at + 1
        cell.has_doubled_quotes = False
        cell.start = at
        while at < self._stop and (at[0] != c'"' or (at + 1 < self._stop and at[1] == c'"')):
            if at[0] == c'"':
                cell.has_doubled_quotes = True
                at += 1
            elif at[0] == c'\n':
                self._line += 1
            at += 1
        cell.stop = at
        if at == self._stop:
            self._at = at
            return BAD_QUOTES
        at += 1
        if at < self._stop and at[0] == c'\r':
            at += 1
        if at == self._stop or at[0] == c'\n' or (at[0] == c',' and (at - 1)[0] == c'"'):
            return self._step_over(at)
        at = <bytes_t>memchr(at, c'\n', self._stop - at)
        self._step_over(self._stop if at == NULL else at)
        return BAD_QUOTES

    cdef Ending _step_over(self, bytes_t separator) noexcept nogil:
        if separator == self._stop:
            self._at = separator
            return END_OF_ROW
        self._at = separator + 1
        if separator[0] == c',':
            return COMMA
        self._line += 1
        return END_OF_ROW

    cdef int _read_row(self, Py_ssize_t row) except -1:
        cdef Cell cell
        cdef Ending ending = COMMA
        cdef Py_ssize_t missing, column = 0, num_columns = self._spec.shape[0]
        cdef int64_t line = self._line
        cdef Py_ssize_t faults_before = self._num_faults
        while ending == COMMA:
            ending = self._next_cell(&cell)
            if ending != BAD_QUOTES and column < num_columns:
                self._read_cell(row, column, &cell, line)
            column += 1
        for missing in range(column - (ending == BAD_QUOTES), num_columns):
            self._values[missing, row] = _MISSING       # for callers that leave the row out
        if ending == BAD_QUOTES:
            self._refuse_row(line, faults_before, BAD_QUOTES_MESSAGE)
        elif column != num_columns:
            self._refuse_row(line, faults_before, f"expected {num_columns} cells, as in the first line, found {column}")
        return 0

    cdef int _refuse_row(self, int64_t line, Py_ssize_t faults_before, str fault) except -1:
        """Replace the faults of the row's cells by one that explains them."""
        self._faults.forget_since(faults_before)
        self._faults.add(line, fault)
        self._num_faults = faults_before + 1
        return 0

    cdef int _read_cell(self, Py_ssize_t row, Py_ssize_t column, Cell* cell, int64_t line) except -1:
        cdef int64_t kind = self._spec[column, 0]
        cdef int64_t value = _MISSING
        cdef Py_ssize_t first_segment = self._num_segments
        cdef Parse outcome
        if kind == IGNORE:
            return 0
        if kind != TEXT and kind != PROMPT:
            _trim(cell)
        if cell.start == cell.stop:
            if self._spec[column, 3]:
                self._refuse(column, cell, line, False)
        elif kind == TEXT:
            value = self._intern(column, cell, cell.start, cell.stop)
        elif kind == PROMPT:
            value = self._read_prompt(column, cell)
            if value < 0:
                self._num_segments = first_segment
                self._refuse(column, cell, line, False)
        else:
            outcome = _parse(kind, cell, &value)
            if kind == IDENTITY:
                self._ids_are_text = self._ids_are_text or outcome != PARSED
            elif outcome != PARSED or not self._spec[column, 1] <= value <= self._spec[column, 2]:
                self._refuse(column, cell, line, outcome == TOO_LARGE or (
                    outcome == PARSED and value > self._spec[column, 2]))
        self._values[column, row] = value
        return 0

    cdef int64_t _read_prompt(self, Py_ssize_t column, Cell* cell) except -2:
        """Append the segments of `stream:tokens/stream:tokens...`; return their number, -1: malformed."""
        cdef bytes_t at = cell.start
        cdef bytes_t stop
        cdef bytes_t colon
        cdef Py_ssize_t first = self._num_segments
        cdef int64_t num_tokens
        while True:
            stop = <bytes_t>memchr(at, c'/', cell.stop - at)
            if stop == NULL:
                stop = cell.stop
            colon = stop - 1
            while colon >= at and colon[0] != c':':
                colon -= 1
            if colon < at or parse_integer(colon + 1, stop, &num_tokens) != PARSED:
                return -1
            if not 0 <= num_tokens <= _MAX_TOKENS:
                return -1
            if num_tokens > 0:
                self._segments[0, self._num_segments] = self._intern(column, cell, at, colon)
                self._segments[1, self._num_segments] = num_tokens
                self._num_segments += 1
            if stop == cell.stop:
                return self._num_segments - first
            at = stop + 1

    cdef int64_t _intern(self, Py_ssize_t column, Cell* cell, bytes_t start, bytes_t stop) except -1:
        cdef dict codes = self._interned[column]
        cdef bytes text = _text(cell, start, stop)
        code = codes.get(text)
        if code is None:
            code = codes[text] = len(codes)
        return code

    cdef int _refuse(self, Py_ssize_t column, Cell* cell, int64_t line, bint too_large) except -1:
        self._num_faults += 1
        expected = _expectation(*self._spec[column], too_large)
        self._faults.add_cell(line, self._names[column], expected, _text(cell, cell.start, cell.stop))
        return 0


cdef inline Parse _parse(int64_t kind, const Cell* cell, int64_t* value) noexcept nogil:
    if kind == INTEGER or kind == IDENTITY:
        return parse_integer(cell.start, cell.stop, value)
    if kind == SECONDS:
        return parse_seconds(cell.start, cell.stop, value)
    if kind == TIMESTAMP:
        return parse_timestamp(cell.start, cell.stop, value)
    return parse_seconds(
        cell.start, cell.stop, value, -3 if kind == MILLISECONDS else -6 if kind == MICROSECONDS else -9)


cdef inline void _trim(Cell* cell) noexcept nogil:
    while cell.start < cell.stop and (cell.start[0] == c' ' or cell.start[0] == c'\t'):
        cell.start += 1
    while cell.start < cell.stop and ((cell.stop - 1)[0] == c' ' or (cell.stop - 1)[0] == c'\t'):
        cell.stop -= 1


cdef bytes _text(const Cell* cell, bytes_t start, bytes_t stop):
    cdef bytes text = start[:stop - start]
    return text.replace(b'""', b'"') if cell.has_doubled_quotes else text


def _expectation(kind, low, high, required, too_large):
    """Return a text on the valid content of a column's cells."""
    if kind == INTEGER:
        return f"an integer <= {high}" if too_large else f"an integer >= {low}"
    if kind == SECONDS:
        return f"at most {high / 1e9:g} s" if too_large else "a number of seconds >= 0"
    if kind in _UNITS:
        return f"at most {high / 1e9:g} s" if too_large else f"a number of {_UNITS[kind]} >= 0"
    if kind == TIMESTAMP:
        return "a time like 2023-11-16 18:15:46.6805900"
    if kind == PROMPT:
        return f"segments stream:tokens joined by /, tokens an integer from 0 to {MAX_TOKENS}"
    return "text"
