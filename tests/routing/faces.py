"""Routers and scorers on a plain view, whose replicas a test describes itself."""
from simulator.testing.views import context_of, filter_of, router_of, scorer_of, send, tell, view_of, workload

__all__ = ["context_of", "filter_of", "router_of", "scorer_of", "send", "tell", "view_of", "workload"]
