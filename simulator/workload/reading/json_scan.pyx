"""A scanner of JSON Lines into columns: one pass over the bytes, no Python object per number.

It reads lines of the common form: JSON of RFC 8259 without escapes in texts. If a line has another form, or a value
that its key does not allow, the scan gives up, and the file is decoded line by line with messages on its faults.
"""
from libc.math cimport NAN
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp

from simulator.workload.reading.numbers cimport bytes_t, is_digit

from typing import NamedTuple

import numpy as np

from simulator.workload.limits import MISSING

cpdef enum JsonKind:                # the values of a key
    INTEGER                         # int64
    NUMBER                          # float64
    TEXT                            # text, as codes into a list of distinct texts
    NAME                            # text or an integer, as TEXT
    INTEGERS                        # a list of int64
    OTHER                           # a value that no table holds: a line that has it has not the common form

cdef enum:
    DEEPEST = 32                    # nesting of values that are skipped
    MOST_KEYS = 62                  # of a line: one bit each
    EXACT_DIGITS = 15               # a number with as many digits, by a power of ten up to 10**22, is rounded once
    LONGEST_NUMBER = 400            # characters
    LONGEST_LINE = 67108864         # bytes, as files.MAX_LINE_BYTES

cdef int64_t _MISSING = MISSING
cdef double[23] _POWERS             # of ten, each exact
for _power in range(23):
    _POWERS[_power] = 10.0 ** _power


class JsonKey(NamedTuple):
    """The values that a key may have.

    required : no line may lack it, or have null.
    """

    kind: int
    low: float = -2**63
    high: float = 2**63 - 1
    required: bool = False


class JsonScan(NamedTuple):
    """The scanned lines; a key that no line has is in none of the tables."""

    lines: np.ndarray               # int64 (n,): number of each line, from 1
    values: dict                    # key -> int64 or float64 (n,): MISSING or NaN, numbers, codes, lengths of lists
    texts: dict                     # key of names -> list of distinct texts
    items: dict                     # key of lists -> int64, the items of all lists


cdef struct Key:
    bytes_t name
    Py_ssize_t length
    int kind
    int64_t low, high
    double lowest, highest
    int64_t* integers               # [lines] NULL: no line has had it
    double* numbers


def scan_lines(bytes data, dict keys):
    """Return the lines of a text; None: a line has not the common form.

    Parameters
    ----------
    data : UTF-8 text without NUL characters.
    keys : the JsonKey of each key to read; others are skipped.
    """
    return _Scanner(data, keys).scan() if 0 < len(keys) <= MOST_KEYS else None


cdef class _Scanner:
    cdef bytes _data                # owns the memory of the pointers
    cdef bytes_t _at
    cdef bytes_t _stop
    cdef Py_ssize_t _capacity       # lines at most
    cdef Key[62] _keys
    cdef int _num_keys
    cdef uint64_t _required         # bits of keys
    cdef list _names, _codes, _arrays, _items
    cdef int64_t* _item             # where the next item of a list goes; one key is a list at most
    cdef int64_t* _first_item

    def __init__(self, bytes data, dict keys):
        cdef Key* key
        self._data, self._names = data, [name.encode() for name in keys]
        self._at = <bytes_t><const char*>data
        self._stop = self._at + len(data)
        self._at += 3 if data.startswith(b"\xef\xbb\xbf") else 0
        self._capacity = data.count(b"\n") + 1
        self._codes, self._arrays, self._items = [{} for _ in keys], [None for _ in keys], [None for _ in keys]
        for name, spec in zip(self._names, keys.values(), strict=True):
            key = &self._keys[self._num_keys]
            key.name, key.length, key.kind = <bytes_t><const char*>name, len(name), spec.kind
            key.lowest, key.highest = spec.low, spec.high
            if spec.kind != NUMBER:
                key.low, key.high = spec.low, spec.high
            self._required |= <uint64_t>spec.required << self._num_keys
            self._num_keys += 1

    def scan(self):
        cdef int64_t[::1] lines
        cdef Py_ssize_t row = 0
        cdef int64_t number = 1
        cdef bytes_t begin
        line_array = np.empty(self._capacity, dtype=np.int64)
        lines = line_array
        while True:
            begin = self._at
            self._skip_spaces()
            if self._at == self._stop:
                break
            if self._at[0] != c'\n':
                if not self._read_line(row) or self._at - begin > LONGEST_LINE:
                    return None
                lines[row] = number
                row += 1
                if self._at == self._stop:
                    break
            self._at += 1
            number += 1
        return self._scan_of(line_array[:row], row)

    def _scan_of(self, lines, row):
        values, texts, items = {}, {}, {}
        for at, name in enumerate(self._names):
            if self._arrays[at] is None:
                continue
            key = name.decode()
            values[key] = self._arrays[at][:row]
            if self._keys[at].kind in (NAME, TEXT):
                texts[key] = [text.decode() for text in self._codes[at]]
            if self._items[at] is not None:
                items[key] = self._items[at][:self._item - self._first_item]
        return JsonScan(lines, values, texts, items)

    cdef inline void _skip_spaces(self) noexcept nogil:
        while self._at < self._stop and (self._at[0] == c' ' or self._at[0] == c'\t' or self._at[0] == c'\r'):
            self._at += 1

    cdef inline bint _skip(self, unsigned char character) noexcept nogil:
        """Step over a character and the spaces around it; return whether it is there."""
        self._skip_spaces()
        if self._at == self._stop or self._at[0] != character:
            return False
        self._at += 1
        self._skip_spaces()
        return True

    cdef int _read_line(self, Py_ssize_t row) except -1:
        """Read an object, up to the line's end; return 0 if it has not the common form."""
        cdef uint64_t seen = 0
        cdef int expected = 0, at
        cdef bytes_t name
        if not self._skip(c'{') or (self._at < self._stop and self._at[0] == c'}'):
            return 0
        while True:
            name = self._at + 1
            if not self._skip_text():
                return 0
            at = self._key_at(name, self._at - 1 - name, expected)
            if not self._skip(c':'):
                return 0
            if at < 0:
                if not self._skip_value(0):
                    return 0
            elif seen >> at & 1 or not self._read_value(at, row, &seen):
                return 0
            expected = at + 1
            if self._skip(c'}'):
                break
            if not self._skip(c','):
                return 0
        return seen & self._required == self._required and (self._at == self._stop or self._at[0] == c'\n')

    cdef inline int _key_at(self, bytes_t name, Py_ssize_t length, int expected) noexcept nogil:
        """Return the place of a key, -1: it is not read."""
        cdef int i
        if expected < self._num_keys and _is_named(&self._keys[expected], name, length):
            return expected
        for i in range(self._num_keys):
            if _is_named(&self._keys[i], name, length):
                return i
        return -1

    cdef int _read_value(self, int at, Py_ssize_t row, uint64_t* seen) except -1:
        cdef Key* key = &self._keys[at]
        cdef int64_t value
        if self._at < self._stop and self._at[0] == c'n':
            return self._skip_word(b"null")
        if key.kind == OTHER:
            return 0
        seen[0] |= <uint64_t>1 << at
        if key.integers == NULL and key.numbers == NULL:
            self._begin(at)
        if key.kind == NUMBER:
            return self._read_number(key, &key.numbers[row])
        if key.kind == INTEGERS:
            return self._read_integers(key, &key.integers[row])
        if key.kind == NAME or key.kind == TEXT:
            return self._read_name(at, &key.integers[row])
        if not self._read_integer(&value) or not key.low <= value <= key.high:
            return 0
        key.integers[row] = value
        return 1

    def _begin(self, int at):
        """Make room for the values of a key."""
        cdef Key* key = &self._keys[at]
        cdef double[::1] numbers
        cdef int64_t[::1] integers
        if key.kind == NUMBER:
            self._arrays[at] = numbers = np.full(self._capacity, NAN)
            key.numbers = &numbers[0]
        else:
            self._arrays[at] = integers = np.full(self._capacity, _MISSING)
            key.integers = &integers[0]
        if key.kind == INTEGERS:
            self._items[at] = integers = np.empty(self._data.count(b",") + self._capacity, dtype=np.int64)
            self._item = self._first_item = &integers[0]

    cdef inline bint _read_integer(self, int64_t* value) noexcept nogil:
        """Read `-?(0|[1-9][0-9]*)` of at most 18 digits, with none of `.eE` behind it."""
        cdef bint is_negative = self._at < self._stop and self._at[0] == c'-'
        cdef bytes_t begin = self._at + is_negative
        cdef bytes_t at = begin
        cdef int64_t total = 0
        while at < self._stop and is_digit(at[0]) and at - begin < 19:
            total = total * 10 + (at[0] - 48) if at - begin < 18 else total
            at += 1
        if at == begin or at - begin > 18 or (begin[0] == c'0' and at - begin > 1):
            return False
        if at < self._stop and (at[0] == c'.' or at[0] == c'e' or at[0] == c'E'):
            return False
        self._at = at
        value[0] = -total if is_negative else total
        return True

    cdef int _read_number(self, Key* key, double* value) except -1:
        """Read a number as the nearest double."""
        cdef bytes_t begin = self._at
        cdef bytes_t at
        cdef int64_t total = 0, place = 0, num_digits = 0
        cdef bint is_plain = True
        if not self._skip_number():
            return 0
        at = begin
        while at < self._at and is_plain:
            if is_digit(at[0]):
                total = total * 10 + (at[0] - 48)
                num_digits += 1
                place += place > 0
            elif at[0] == c'.':
                place = 1
            else:
                is_plain = False
            is_plain = is_plain and num_digits <= EXACT_DIGITS
            at += 1
        if is_plain:
            value[0] = total / _POWERS[place - 1] if place > 0 else total
        elif self._at - begin > LONGEST_NUMBER:
            return 0
        else:
            value[0] = float(begin[:self._at - begin])
        return key.lowest <= value[0] <= key.highest

    cdef int _read_integers(self, Key* key, int64_t* length) except -1:
        cdef int64_t* first = self._item
        if not self._skip(c'['):
            return 0
        if not self._skip(c']'):
            while True:
                if not self._read_integer(self._item) or not key.low <= self._item[0] <= key.high:
                    return 0
                self._item += 1
                if self._at < self._stop and self._at[0] == c',':       # the common ending, without a call
                    self._at += 1
                    self._skip_spaces()
                elif self._skip(c']'):
                    break
                elif not self._skip(c','):
                    return 0
        length[0] = self._item - first
        return 1

    cdef int _read_name(self, int at, int64_t* code) except -1:
        cdef bytes_t begin = self._at
        cdef int64_t value
        cdef dict codes = self._codes[at]
        cdef bytes text
        if begin < self._stop and begin[0] == c'"':
            if not self._skip_text():
                return 0
            text = begin[1:self._at - 1 - begin]
        elif self._keys[at].kind == TEXT or not self._read_integer(&value) or (value == 0 and begin[0] == c'-'):
            return 0
        else:
            text = begin[:self._at - begin]
        found = codes.get(text)
        if found is None:
            found = codes[text] = len(codes)
        code[0] = found
        return 1

    # ---- values that are skipped

    cdef inline bint _skip_text(self) noexcept nogil:
        """Step over a text without escapes; return whether there is one."""
        cdef bytes_t at = self._at
        if at == self._stop or at[0] != c'"':
            return False
        at += 1
        while at < self._stop and at[0] != c'"':
            if at[0] < 32 or at[0] == c'\\':
                return False
            at += 1
        if at == self._stop:
            return False
        self._at = at + 1
        return True

    cdef inline int _skip_word(self, const char* word) noexcept nogil:
        while word[0] != 0 and self._at < self._stop and self._at[0] == word[0]:
            self._at += 1
            word += 1
        return word[0] == 0

    cdef bint _skip_digits(self) noexcept nogil:
        cdef bytes_t begin = self._at
        while self._at < self._stop and is_digit(self._at[0]):
            self._at += 1
        return self._at > begin

    cdef bint _skip_number(self) noexcept nogil:
        cdef bytes_t begin
        self._at += self._at < self._stop and self._at[0] == c'-'
        begin = self._at
        if not self._skip_digits() or (begin[0] == c'0' and self._at - begin > 1):
            return False
        if self._at < self._stop and self._at[0] == c'.':
            self._at += 1
            if not self._skip_digits():
                return False
        if self._at < self._stop and (self._at[0] == c'e' or self._at[0] == c'E'):
            self._at += 1
            self._at += self._at < self._stop and (self._at[0] == c'-' or self._at[0] == c'+')
            return self._skip_digits()
        return True

    cdef bint _skip_value(self, int depth) noexcept nogil:
        """Step over any value; return whether it has the common form."""
        if self._at == self._stop or depth > DEEPEST:
            return False
        if self._at[0] == c'"':
            return self._skip_text()
        if self._at[0] == c'{' or self._at[0] == c'[':
            return self._skip_members(self._at[0] == c'{', depth)
        if self._at[0] == c't':
            return self._skip_word(b"true")
        if self._at[0] == c'f':
            return self._skip_word(b"false")
        return self._skip_word(b"null") if self._at[0] == c'n' else self._skip_number()

    cdef bint _skip_members(self, bint is_object, int depth) noexcept nogil:
        cdef unsigned char end = c'}' if is_object else c']'
        self._skip(self._at[0])
        if self._skip(end):
            return True
        while True:
            if is_object and not (self._skip_text() and self._skip(c':')):
                return False
            if not self._skip_value(depth + 1):
                return False
            if self._skip(end):
                return True
            if not self._skip(c','):
                return False


cdef inline bint _is_named(const Key* key, bytes_t name, Py_ssize_t length) noexcept nogil:
    return key.length == length and memcmp(key.name, name, length) == 0
