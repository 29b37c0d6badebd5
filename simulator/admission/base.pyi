from collections.abc import Callable
from typing import Any

import msgspec

class AdmissionContext(msgspec.Struct, frozen=True):
    view: Any
    workload: Any
    classes: Any
    num_slots: int = 0
    make: Callable | None = None
    seed: int = 0
    stream: str = "admission"
    assignment: Any = None              # simulator.routing.instances.base.Assignment
    views: tuple = ()                   # View

class Admission:
    view: Any                           # View
    reads_state: bool
    classes: Any                        # ClassTable

    def __init__(self, parameters: Any, context: AdmissionContext) -> None: ...
    def lets_in(self, row: int, now_ns: int) -> bool: ...
    def note_sent(self, row: int, now_ns: int) -> None: ...
    def note_left(self, row: int, now_ns: int) -> None: ...
