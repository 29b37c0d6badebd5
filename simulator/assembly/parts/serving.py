"""The wire of a live session, [serve]: the command `serve` reads it, and a run goes without it."""
from typing import Annotated

from msgspec import Meta

from simulator.assembly.parts.base import Part
from simulator.domain.serving import Serve


class Serving(Part):
    """Settings of `python -m simulator serve`."""

    keys = {"serve": Annotated[Serve | None, Meta(description=(
        "time, texts, lengths and limits of `python -m simulator serve`; a run does not depend on it"))]}
