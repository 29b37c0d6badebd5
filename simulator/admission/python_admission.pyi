from typing import Any

import numpy as np

from simulator.admission.base import Admission, AdmissionContext
from simulator.signals.request_view import RequestView

class PythonAdmission(Admission):
    Parameters: Any                     # a frozen msgspec.Struct class, or None
    parameters: Any
    states: np.ndarray
    accounts: np.ndarray

    def __init__(self, parameters: Any, context: AdmissionContext) -> None: ...
    def lets_pass(self, request: RequestView, now_ns: int) -> bool: ...
