"""Tables in which a distribution is chosen by name."""
from typing import Annotated, Any

import msgspec
from msgspec import Meta


class LengthChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number of tokens; the keys of the distribution are in this table, too."""

    distribution: Annotated[str, Meta(description="distribution of the lengths")]
    parameters: Annotated[Any, Meta(extra={"kind": "length_distribution"})]
