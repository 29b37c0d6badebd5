"""The first signal asks to stop, the second aborts."""
import contextlib
import os
import signal
import threading

import pytest

from simulator.results.interrupts import Aborted, Interrupts

pytestmark = pytest.mark.usefixtures("heeded_signals")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_the_second_raises(number):
    before = signal.getsignal(number)

    def run():
        with Interrupts() as interrupts:
            os.kill(os.getpid(), number)
            assert interrupts.signal_number == number
            os.kill(os.getpid(), number)

    with pytest.raises(Aborted) as caught:
        run()

    assert caught.value.signal_number == number
    assert isinstance(caught.value, KeyboardInterrupt)
    assert signal.getsignal(number) is before


def test_an_abort_that_got_lost_can_be_asked_for_again():

    def run():
        with Interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            with contextlib.suppress(Aborted):      # as Python does in a destructor
                os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Aborted):
        run()


def test_a_signal_that_the_process_ignores_stays_ignored(monkeypatch):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGINT)
            assert interrupts.signal_number is None
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_leave_the_handlers_alone():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def enter():
        with Interrupts() as interrupts:
            seen.append((signal.getsignal(signal.SIGINT), interrupts.signal_number))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()

    assert seen == [(before, None)]
