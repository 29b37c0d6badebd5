"""SIM_DEBUG: 1 in the debug and sanitize builds, else 0. A C constant: in a release `if SIM_DEBUG:` leaves nothing."""

cdef extern from *:
    """
    #ifndef SIM_DEBUG
    #define SIM_DEBUG 0
    #endif
    """
    const bint SIM_DEBUG
