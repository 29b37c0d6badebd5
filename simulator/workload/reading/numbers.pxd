"""Exact numbers from decimal text: integers, seconds and calendar times as nanoseconds. No float is used.

Each function reads all of [at, stop) and returns the outcome; `value` is set only if that is PARSED.
"""
from libc.stdint cimport INT64_MAX, int64_t

ctypedef const unsigned char* bytes_t


cdef enum Parse:
    PARSED
    MALFORMED               # not such a number, or below every bound (negative seconds, less than -2**63)
    TOO_LARGE               # such a number, but above int64


cdef inline bint is_digit(unsigned char character) noexcept nogil:
    return 48 <= character <= 57


cdef inline Parse parse_integer(bytes_t at, bytes_t stop, int64_t* value) noexcept nogil:
    """Read `-?[0-9]+`."""
    cdef bint negative = at < stop and at[0] == c'-'
    cdef bint overflow = False
    cdef int64_t total = 0
    at += negative
    if at == stop:
        return MALFORMED
    while at < stop:
        if not is_digit(at[0]):
            return MALFORMED
        overflow = overflow or total > (INT64_MAX - 9) // 10
        if not overflow:
            total = total * 10 + (at[0] - 48)
        at += 1
    if overflow:
        return MALFORMED if negative else TOO_LARGE
    value[0] = -total if negative else total
    return PARSED


cdef inline int64_t exponent_of(bytes_t at, bytes_t stop) noexcept nogil:
    """Read the text after an `e`: `[+-]?[0-9]+`, cut off at +-10**6; INT64_MAX: malformed."""
    cdef int64_t sign = -1 if at < stop and at[0] == c'-' else 1
    cdef int64_t exponent = 0
    at += at < stop and (at[0] == c'-' or at[0] == c'+')
    if at == stop:
        return INT64_MAX
    while at < stop:
        if not is_digit(at[0]):
            return INT64_MAX
        exponent = min(exponent * 10 + (at[0] - 48), 1000000)
        at += 1
    return sign * exponent


cdef inline Parse nanoseconds_of(bytes_t at, bytes_t stop, int64_t place, int64_t* value) noexcept nogil:
    """Sum digits (a point among them is skipped), the first worth 10**place s; half a nanosecond rounds up."""
    cdef int64_t total = 0
    while at < stop and place >= -10:
        if at[0] != c'.':
            if place == -10:
                total += at[0] >= c'5'
            elif total > (INT64_MAX - 9) // 10:
                return TOO_LARGE
            else:
                total = total * 10 + (at[0] - 48)
            place -= 1
        at += 1
    while place >= -9 and total > 0:
        if total > INT64_MAX // 10:
            return TOO_LARGE
        total *= 10
        place -= 1
    value[0] = total
    return PARSED


cdef inline Parse parse_seconds(bytes_t at, bytes_t stop, int64_t* value, int64_t unit=0) noexcept nogil:
    """Read `[0-9]*.?[0-9]*([eE][+-]?[0-9]+)?` units of 10**unit s, at least one digit, as the nearest nanosecond."""
    cdef bytes_t mantissa_stop = at
    cdef bytes_t point = NULL
    cdef int64_t exponent = 0
    while mantissa_stop < stop and (is_digit(mantissa_stop[0]) or (mantissa_stop[0] == c'.' and point == NULL)):
        if mantissa_stop[0] == c'.':
            point = mantissa_stop
        mantissa_stop += 1
    if mantissa_stop - at == (point != NULL):
        return MALFORMED
    if mantissa_stop < stop:
        if mantissa_stop[0] != c'e' and mantissa_stop[0] != c'E':
            return MALFORMED
        exponent = exponent_of(mantissa_stop + 1, stop)
        if exponent == INT64_MAX:
            return MALFORMED
    if point == NULL:
        point = mantissa_stop
    return nanoseconds_of(at, mantissa_stop, (point - at) + exponent + unit - 1, value)


cdef inline int64_t digits(bytes_t at, int count) noexcept nogil:
    """Return the number written with `count` digits at `at`; -1: there are other characters."""
    cdef int64_t total = 0
    cdef int i
    for i in range(count):
        if not is_digit(at[i]):
            return -1
        total = total * 10 + (at[i] - 48)
    return total


cdef inline int64_t days_since_1970(int64_t year, int64_t month, int64_t day) noexcept nogil:
    """Return the day number of a Gregorian date; the year is taken to begin in March, so that leap days come last."""
    cdef int64_t years = year - (month <= 2)
    cdef int64_t day_of_year = (153 * (month + (9 if month <= 2 else -3)) + 2) // 5 + day - 1
    return 365 * years + years // 4 - years // 100 + years // 400 + day_of_year - 719468


cdef inline Parse parse_date(bytes_t at, int64_t* days) noexcept nogil:
    """Read `YYYY-MM-DD`, from 1970 to 2199."""
    cdef int64_t year = digits(at, 4), month = digits(at + 5, 2), day = digits(at + 8, 2)
    if at[4] != c'-' or at[7] != c'-' or not (1970 <= year < 2200 and 1 <= month <= 12 and day >= 1):
        return MALFORMED
    days[0] = days_since_1970(year, month, day)
    if days[0] >= days_since_1970(year + month // 12, month % 12 + 1, 1):
        return MALFORMED
    return PARSED


cdef inline Parse parse_zone(bytes_t at, bytes_t stop, int64_t* offset_s) noexcept nogil:
    """Read nothing, `Z`, `UTC` or `[+-]HH`, `[+-]HHMM`, `[+-]HH:MM`, behind a space or none."""
    cdef int64_t hours, minutes = 0
    offset_s[0] = 0
    at += at < stop and at[0] == c' '
    if at == stop or (stop - at == 1 and (at[0] == c'Z' or at[0] == c'z')):
        return PARSED
    if stop - at == 3 and at[0] == c'U' and at[1] == c'T' and at[2] == c'C':
        return PARSED
    if not (stop - at == 3 or stop - at == 5 or (stop - at == 6 and at[3] == c':')):
        return MALFORMED
    if at[0] != c'+' and at[0] != c'-':
        return MALFORMED
    hours = digits(at + 1, 2)
    if stop - at > 3:
        minutes = digits(stop - 2, 2)
    if not (0 <= hours < 24 and 0 <= minutes < 60):
        return MALFORMED
    offset_s[0] = (hours * 60 + minutes) * (60 if at[0] == c'+' else -60)
    return PARSED


cdef inline Parse parse_timestamp(bytes_t at, bytes_t stop, int64_t* value) noexcept nogil:
    """Read `YYYY-MM-DD HH:MM:SS[.digits][zone]` (or `T` for the space, a comma for the point) as ns since 1970, UTC."""
    cdef int64_t days, hour, minute, second, offset_s, fraction_ns = 0
    cdef bytes_t end = at + 19
    if stop - at < 19 or parse_date(at, &days) != PARSED:
        return MALFORMED
    hour, minute, second = digits(at + 11, 2), digits(at + 14, 2), digits(at + 17, 2)
    if (at[10] != c' ' and at[10] != c'T') or at[13] != c':' or at[16] != c':':
        return MALFORMED
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
        return MALFORMED
    if end < stop and (end[0] == c'.' or end[0] == c','):
        end += 1
        while end < stop and is_digit(end[0]):
            end += 1
        if end == at + 20:
            return MALFORMED
        nanoseconds_of(at + 20, end, -1, &fraction_ns)
    if parse_zone(end, stop, &offset_s) != PARSED:
        return MALFORMED
    value[0] = (((days * 24 + hour) * 60 + minute) * 60 + second - offset_s) * 1000000000 + fraction_ns
    return PARSED
