"""`clients`: requests of many clients, each with habits of its own."""
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.workload.column_options import DEFAULT_OPTIONS, ColumnOptions
from simulator.workload.columns import Columns


class ClientsParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clients, and the format of their description, with its keys in the same table."""

    format: Annotated[str, Meta(description="format of the clients' description")] = "toml"
    parameters: Annotated[Any, Meta(extra={"kind": "client_format"})]

    @property
    def num_requests(self) -> int | None:
        """Return the bound on all clients' requests; None: only `duration_s` bounds them."""
        return getattr(self.parameters, "num_requests", 1)      # formats without it have other bounds

    @property
    def duration_s(self) -> float | None:
        """Return when requests end; None: never, or the format has its own key."""
        return getattr(self.parameters, "duration_s", None)


class OfClients:
    """Requests of clients.

    A format is built as `Format(parameters)` and has one method, `columns(streams, wanted) -> Columns`.
    """

    Parameters = ClientsParameters

    def __init__(self, parameters: ClientsParameters):
        self.format = registry.load("client_format", parameters.format)(parameters.parameters)

    def columns(self, streams: RandomStreams, options: ColumnOptions = DEFAULT_OPTIONS) -> Columns:
        """Return the requests.

        Raises
        ------
        InputErrors
            Faults of a file, by line or key; parameters that lead to no valid workload.
        """
        return self.format.columns(streams, options)
