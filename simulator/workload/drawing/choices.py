"""Tables in which a distribution is chosen by name."""
from typing import Annotated, Any

import msgspec
from msgspec import Meta


class LengthChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number of tokens; the keys of the distribution stand in the same table."""

    distribution: Annotated[str, Meta(description="what draws the lengths")]
    parameters: Annotated[Any, Meta(extra={"kind": "length_distribution"})]
