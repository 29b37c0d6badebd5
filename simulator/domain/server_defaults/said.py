"""Default values with the rules that set them, and the facts that the rules depend on."""
from typing import Any, NamedTuple

import msgspec

from simulator.domain.model_spec import ModelSpec
from simulator.domain.server_defaults.cards import Card

NO_CARD = "no [hardware] to take it from"


class Default(NamedTuple):
    """A value that an experiment file leaves out.

    why : the engine, its version and card, and the rule, in words.
    """

    value: Any
    why: str


class Machine(NamedTuple):
    """The facts of a pool that a server's defaults depend on.

    card, model, max_model_len : None: not known. topology : `config.experiment.Topology`.
    kv_cache_dtype : of [model], "auto" included. deployment : `Deployment`; None: not known, or faulty.
    """

    card: Card | None
    model: ModelSpec | None
    max_model_len: int | None
    topology: Any
    role: str = "both"
    kv_cache_dtype: str = "auto"
    deployment: Any = None

    def with_kv(self, default: Default | None) -> "Machine":
        """Return these facts with a default of kv_cache_dtype."""
        if default is None:
            return self
        deployment = self.deployment and msgspec.structs.replace(self.deployment, kv_cache_dtype=default.value)
        return self._replace(kv_cache_dtype=default.value, deployment=deployment)

    def on_card(self, engine: str) -> str:
        """Return the engine on its card, in prose."""
        return f"{engine} on {self.card.short}" if self.card is not None else f"{engine}, {NO_CARD}"


def usual(engine) -> dict[str, Default]:
    """Return the defaults of keys that schedulers of any kind have.

    engine : `config.experiment.Engine`; `ENGINE_DEFAULTS` of its scheduler's parameters win.
    """
    chosen = type(engine.parameters)
    own, name = getattr(chosen, "ENGINE_DEFAULTS", {}), getattr(chosen, "ENGINE", f"scheduler {engine.scheduler}")
    return {key: Default(own.get(key, value), name if key in own else "default")
            for key, value in (("block_size", 16), ("gpu_memory_utilization", 0.9))}
