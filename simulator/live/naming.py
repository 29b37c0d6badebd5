"""Names that HTTP requests carry: model or adapter, tenant, session, and SLO class.

Source of the headers: llm-d-router@ebab6879 and gateway-api-inference-extension@84436a96.
"""
from collections.abc import Mapping

from simulator.live.bodies import Refused
from simulator.live.labels import Labels

# Column -> headers with its name, the first that is given counts.
HEADERS = {
    "tenant": ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"),
    "session": ("X-Session-ID",),
    "slo_class": ("x-llm-d-inference-objective", "x-gateway-inference-objective")}
MOST_CHARACTERS = 128           # of a name; the rest is cut off


def adapters_of(labels: Labels) -> list[str]:
    """Return the adapters that clients may name as a model."""
    return labels.names.get("adapter", [])


def check_model(name: str | None, model: str, labels: Labels) -> None:
    """Raise Refused unless a name is that of the model, or of an adapter."""
    if name not in (None, model, *adapters_of(labels)):
        raise Refused(404, f"The model `{name}` does not exist.", "NotFoundError", "model")


def names_of(headers: Mapping[str, str], model: str | None, session: str | None = None,
             user: str | None = None) -> dict[str, str]:
    """Return the names of a request, by column of `labels.COLUMNS`.

    model, session, user : fields of its body; a header counts before `user`, a session of the body before its header.
    """
    names = {column: next(filter(None, map(headers.get, keys)), "") for column, keys in HEADERS.items()}
    names["session"] = session or names["session"]
    names["tenant"] = names["tenant"] or user or ""
    return {column: name[:MOST_CHARACTERS] for column, name in (names | {"adapter": model or ""}).items()}
