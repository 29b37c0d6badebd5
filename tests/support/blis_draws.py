"""BLIS's draws for our routers: where several replicas are equally good, the one that BLIS drew is taken.

The router, its scores, its weights and its rule stay ours; it only gets its random words from Go's generator.
"""
from contextlib import contextmanager
from functools import partial

from simulator.core.draws import Draws
from simulator.engine import build
from support.blis_random import router_words

ROUTINGS_PER_REQUEST = 2        # a request is routed once, and draws once at most


@contextmanager
def drawing_as_blis(case, monkeypatch):
    """Give the router of a run the words that BLIS's router draws in this case.

    Raises
    ------
    AssertionError
        The router drew more often than there are words.
    """
    words = router_words(case.seed, ROUTINGS_PER_REQUEST * len(case.requests) + 1, case.number("num-instances"))
    draws = Draws.replaying(words)
    with monkeypatch.context() as patch:
        patch.setattr(build, "RoutingContext", partial(build.RoutingContext, draws=draws))
        yield
    assert draws.num_replayed <= len(words)
