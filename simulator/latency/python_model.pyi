from typing import Any

from simulator.domain.deployment import Deployment
from simulator.latency.base import LatencyModel
from simulator.latency.batch_view import BatchView

class PythonLatencyModel(LatencyModel):
    Parameters: Any                     # a frozen msgspec.Struct class, or None
    parameters: Any
    deployment: Deployment | None

    def __init__(self, parameters: Any = None, deployment: Deployment | None = None) -> None: ...
    def batch_us(self, shape: BatchView) -> float: ...
    def raise_if_failed(self) -> None: ...
