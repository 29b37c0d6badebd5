"""Contract tests for policies and latency models, also of other packages.

Each check takes the name of a class, a built-in one or "module:Class", and raises AssertionError with every rule of the
contract that the class breaks. The tests of this project run them over all built-in classes.
"""
from simulator.testing.clusters import check_admission, check_autoscaler
from simulator.testing.latency_models import check_latency_model
from simulator.testing.routers import check_router, check_scorer
from simulator.testing.schedulers import check_scheduler

__all__ = ["check_admission", "check_autoscaler", "check_latency_model", "check_router", "check_scheduler",
           "check_scorer"]
