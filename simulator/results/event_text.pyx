"""Text of many like events, written from columns of numbers."""
import re

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy
cimport cython

import numpy as np

cdef enum:
    INTEGER = 0
    TIME = 1                    # ns, written as microseconds with three decimals
    TEXT = 2                    # number of a text
    LAST = 3                    # no value follows
    NUMBER_BYTES = 25           # of a number or time, at most

_KINDS = {"integer": INTEGER, "time": TIME, "text": TEXT}
_VALUE = re.compile(r"<(\w+)>")


cdef struct Piece:              # of a template: a literal, and the value behind it
    const char* literal
    int32_t length
    int32_t column
    int8_t kind


@cython.final
cdef class EventText:
    """Fills in templates.

    templates : texts with <name> as placeholder for a value.
    columns : name -> "integer", "time" (ns, written as microseconds with three decimals) or "text".
    separator : between two events.
    """
    cdef readonly tuple columns
    cdef list _literals         # that the pieces borrow from
    cdef Piece* _pieces
    cdef int32_t[::1] _first    # [templates + 1] piece of each
    cdef bytes _separator
    cdef int64_t _fixed_bytes   # of an event without its texts, at most
    cdef int32_t _num_texts     # in an event, at most
    cdef object _owners

    def __init__(self, templates, columns, separator=",\n"):
        cdef int8_t[::1] view
        self.columns, self._separator, self._literals = tuple(columns), separator.encode(), []
        parsed = [_VALUE.split(template) for template in templates]
        pieces = np.zeros(sum(len(parts) // 2 + 1 for parts in parsed) * sizeof(Piece), np.int8)
        self._first = np.cumsum([0] + [len(parts) // 2 + 1 for parts in parsed]).astype(np.int32)
        view = pieces
        self._pieces, self._owners = <Piece*>&view[0], pieces
        self._parse(parsed, columns)
        self._fixed_bytes = len(self._separator) + max(
            len(template.encode()) + NUMBER_BYTES * (len(parts) // 2) for template, parts in zip(templates, parsed))
        self._num_texts = max(sum(columns[name] == "text" for name in parts[1::2]) for parts in parsed)

    def _parse(self, parsed, columns):
        cdef Piece* piece = self._pieces
        cdef bytes encoded
        for parts in parsed:
            for literal, name in zip(parts[::2], [*parts[1::2], None]):
                encoded = literal.encode()
                self._literals.append(encoded)
                piece.literal, piece.length = <const char*>encoded, len(encoded)
                piece.kind = LAST if name is None else _KINDS[columns[name]]
                piece.column = -1 if name is None else self.columns.index(name)
                piece += 1

    def write(self, const int8_t[::1] kinds not None, const int64_t[:, ::1] values not None, texts=()):
        """Return the text of some events, an array of uint8.

        kinds : (n,) number of the template of each.
        values : (n, columns) values of the placeholders.
        texts : bytes; the values of columns of texts are their numbers.
        """
        cdef int64_t longest = max(map(len, texts), default=0), i
        ends = np.cumsum([0] + [len(each) for each in texts])
        joined = np.frombuffer(b"".join(texts) or b" ", np.uint8)
        out = np.empty(len(kinds) * (self._fixed_bytes + longest * self._num_texts) + 1, np.uint8)
        cdef const int64_t[::1] ends_view = ends
        cdef const uint8_t[::1] joined_view = joined
        cdef uint8_t[::1] out_view = out
        cdef uint8_t* end = &out_view[0]
        cdef const char* separator = self._separator
        cdef int64_t separator_bytes = len(self._separator)
        with nogil:
            for i in range(len(kinds)):
                if i > 0:
                    memcpy(end, separator, separator_bytes)
                    end += separator_bytes
                end = write_event(end, &self._pieces[self._first[kinds[i]]], &values[i, 0], &joined_view[0],
                                  &ends_view[0])
        return out[:end - &out_view[0]]


cdef uint8_t* write_event(uint8_t* out, const Piece* piece, const int64_t* values, const uint8_t* texts,
                          const int64_t* ends) noexcept nogil:
    cdef int64_t value
    while True:
        memcpy(out, piece.literal, piece.length)
        out += piece.length
        if piece.kind == LAST:
            return out
        value = values[piece.column]
        if piece.kind == INTEGER:
            out = write_integer(out, value)
        elif piece.kind == TIME:
            out = write_time(out, value)
        else:
            memcpy(out, texts + ends[value], ends[value + 1] - ends[value])
            out += ends[value + 1] - ends[value]
        piece += 1


cdef inline uint8_t* write_integer(uint8_t* out, int64_t value) noexcept nogil:
    cdef uint8_t digits[20]
    cdef int32_t number = 0
    if value < 0:
        out[0] = 45                             # "-"; INT64_MIN is no value of a table
        out += 1
        value = -value
    while value >= 10:
        digits[number] = <uint8_t>(48 + value % 10)
        value //= 10
        number += 1
    out[0] = <uint8_t>(48 + value)
    out += 1
    while number > 0:
        number -= 1
        out[0] = digits[number]
        out += 1
    return out


cdef inline uint8_t* write_time(uint8_t* out, int64_t time_ns) noexcept nogil:
    cdef int64_t part = time_ns % 1000
    cdef int64_t whole = time_ns // 1000
    if part < 0:                                # cdivision rounds towards 0, and this rounds down
        part += 1000
        whole -= 1
    out = write_integer(out, whole)
    out[0] = 46                                 # "."
    out[1] = <uint8_t>(48 + part // 100)
    out[2] = <uint8_t>(48 + part // 10 % 10)
    out[3] = <uint8_t>(48 + part % 10)
    return out + 4
