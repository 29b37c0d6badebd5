"""Make the package and the helpers under tests/ importable, wherever pytest is started from."""
import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

LONGEST_S = 15.0            # CPU of a test that README.md's command runs
TESTS = Path(__file__).resolve().parent

sys.path.insert(0, str(TESTS))              # for `support` and `oracle`
sys.path.append(str(TESTS.parent))          # last: an installed simulator is preferred to the checkout

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

RECURSION_LIMIT = sys.getrecursionlimit()


gc.disable()        # while tests are collected: all that they make is kept, and looking for garbage took half the time


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop():
    """Collect garbage again, but never look through what the collection of the tests has left."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)         # before -m is heeded
def pytest_collection_modifyitems(items):
    from support.samples import leave_to_checks, leave_to_ci

    leave_to_ci(items)
    leave_to_checks(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Fail what README.md's command should leave to CI."""
    before_s = cpu_s()
    result = yield
    took_s = cpu_s() - before_s
    if item.config.getoption("markexpr") == "not ci" and took_s > LONGEST_S:
        pytest.fail(f"took {took_s:.0f} s of CPU, over {LONGEST_S} s: shorten it, or mark it `ci`", pytrace=False)
    return result


def cpu_s():
    """Return the seconds that this process and its children that have ended computed."""
    return sum(os.times()[:4])


@pytest.fixture(autouse=True)
def usual_recursion_limit():
    """Put the recursion limit back that hypothesis raises: above it, text nested a thousandfold ends the process."""
    sys.setrecursionlimit(RECURSION_LIMIT)


@pytest.fixture
def heeded_signals():
    """Let this process and its children hear signals as at a terminal.

    Batch systems and scripts start what runs in the background with SIGINT ignored, and children inherit that.
    """
    before = {number: signal.signal(number, handler) for number, handler in (
        (signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL))}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
