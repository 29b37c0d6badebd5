"""Refusal of token mixers that a latency backend has no price of."""
from collections.abc import Collection

from simulator.domain.model_spec import ModelSpec
from simulator.errors import InputErrors, KeyFault


def refuse_unpriced(backend: str, model: ModelSpec, priced: Collection[str]) -> None:
    """Refuse a model with mixers that a backend does not price.

    priced : price keys.

    Raises
    ------
    InputErrors
        It has some.
    """
    if unknown := {mixer.kind: mixer.title for mixer, _ in model.mixers if mixer.price_key not in priced}:
        raise InputErrors([KeyFault(f'latency.backend: "{backend}" has no price of {title}, kind = "{kind}", of '
                                    f"{model.name}; it has prices of {', '.join(priced)}")
                           for kind, title in unknown.items()])
