"""Make the package and the helpers under tests/ importable, wherever pytest is started from."""
import sys
from pathlib import Path

from hypothesis import settings

TESTS = Path(__file__).resolve().parent

sys.path.insert(0, str(TESTS))              # for `support` and `oracle`
sys.path.append(str(TESTS.parent))          # last: an installed simulator is preferred to the checkout

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
