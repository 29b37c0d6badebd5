"""A second signal ends the process even if Python never runs again.

Python notes a signal and acts on it between two of its instructions: while compiled code runs, or waits, a signal has
no effect. The handler installed here is called by the system itself, passes each signal on to Python, and at the second
sets an alarm that ends the process when it goes off.
"""
from libc.string cimport memset

cdef extern from "signal.h" nogil:
    ctypedef struct sigset_t:
        pass
    ctypedef void (*handler_t)(int) noexcept nogil
    cdef struct sigaction_s "sigaction":
        handler_t sa_handler
        sigset_t sa_mask
        int sa_flags
    int sigaction(int number, const sigaction_s* action, sigaction_s* before)
    const int SIGALRM
    const int SA_SIGINFO

cdef extern from "unistd.h" nogil:
    unsigned int alarm(unsigned int seconds)
    void _exit(int status)

cdef enum:
    MOST = 64                       # signals there are
    BY_SIGNAL = 128                 # exit status, less the number of the signal

cdef sigaction_s pythons[MOST]      # Python's action for each watched signal
cdef sigaction_s alarm_before       # previous action for SIGALRM
cdef int num_signals                # signals since arm()
cdef int last_signal
cdef unsigned int grace_s
cdef bint is_armed


cdef void give_up(int number) noexcept nogil:
    _exit(BY_SIGNAL + last_signal)


cdef void note(int number) noexcept nogil:
    """Count a signal, and pass it to Python; calls only async-signal-safe functions."""
    cdef sigaction_s action
    global num_signals, last_signal
    num_signals += 1
    last_signal = number
    if num_signals == 2:
        memset(&action, 0, sizeof(action))
        action.sa_handler = give_up
        sigaction(SIGALRM, &action, &alarm_before)
        alarm(grace_s)
    pythons[number].sa_handler(number)


def arm(numbers, int seconds):
    """Watch signals from now on, which Python handles already.

    numbers : of the signals. seconds : from the second signal to the end of the process.
    """
    cdef sigaction_s action
    cdef int number
    global num_signals, grace_s, is_armed
    num_signals, grace_s, is_armed = 0, seconds, True
    for number in numbers:
        if not 0 < number < MOST or sigaction(number, NULL, &pythons[number]) != 0:
            raise ValueError(f"signal {number} cannot be watched")
        if pythons[number].sa_flags & SA_SIGINFO or pythons[number].sa_handler == NULL:
            raise ValueError(f"signal {number} is not handled by Python")
        action = pythons[number]
        action.sa_handler = note
        sigaction(number, &action, NULL)


def disarm():
    """End nothing any more; the caller restores the handlers of the signals."""
    global num_signals, is_armed
    if is_armed and num_signals >= 2:
        alarm(0)
        sigaction(SIGALRM, &alarm_before, NULL)
    num_signals, is_armed = 0, False
