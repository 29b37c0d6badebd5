"""A question to an engine's parser, and its answer: values with their origins, or a refusal with its cause."""
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from simulator.domain.server_defaults.cards import Card
from simulator.server_line.facts.checkpoints import Checkpoint

By = Literal["flag", "environment", "checkpoint", "engine"]
NO_ENVIRONMENT: Mapping[str, str] = {}


class Question(NamedTuple):
    """A command line on a machine.

    engine, version : a row of engines/. argv : words behind the command. gpus : of a node.
    checkpoint_of : facts of a model by its hub name or folder.
    """

    engine: str
    version: str
    argv: tuple[str, ...]
    card: Card
    gpus: int
    checkpoint_of: Callable[[str], Checkpoint]
    environment: Mapping[str, str] = NO_ENVIRONMENT


class Origin(NamedTuple):
    """The part that sets a value, and the rule in words."""

    by: By
    why: str


class Answer(NamedTuple):
    """Resolved values.

    values : table -> key -> value, as the engine names them. origins : "table.key" -> origin.
    given : flags of the line, by their key in engines/. notes : warnings of the engine, in short.
    """

    values: dict[str, Any]
    origins: dict[str, Origin]
    given: dict[str, Any]
    notes: tuple[str, ...]


class Refused(Exception):
    """The engine refuses a command line.

    Parameters
    ----------
    stage : parse, validate, config (vLLM) or resolve (SGLang): the step that refuses.
    cause : a few words, the same for every line refused for this cause.
    message : the cause with its numbers.
    """

    def __init__(self, stage: str, cause: str, message: str):
        self.stage, self.cause, self.message = stage, cause, message
        super().__init__(message)


class Work:
    """An answer in the making: each step reads earlier values and adds its own."""

    def __init__(self, question: Question, given: dict[str, Any], defaults: Mapping[str, Any]):
        self.question = question
        self.given = given
        self.defaults = defaults
        self.values: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}
        self.notes: list[str] = []

    def flag(self, key: str, default: Any = None) -> Any:
        """Return the value of a flag: as given, else the parser's default."""
        return self.given.get(key, self.defaults.get(key, default))

    def take(self, table: str, *keys: str, **renamed: str) -> None:
        """Set keys of a table that are flags of the same name, or of another one."""
        for key, flag in [*((key, key) for key in keys), *renamed.items()]:
            self.set(f"{table}.{key}", self.flag(flag),
                     *(("flag", f"--{flag.replace('_', '-')}") if flag in self.given else ("engine", "its default")))

    def set(self, place: str, value: Any, by: By = "engine", why: str = "") -> Any:
        """Set "table.key" to a value, with its origin; return the value."""
        *path, key = place.split(".")
        table = self.values
        for name in path:
            table = table.setdefault(name, {})
        table[key] = value
        self.origins[place] = Origin(by, why)
        return value

    def get(self, place: str) -> Any:
        """Return the value of "table.key" that an earlier step has set."""
        value = self.values
        for name in place.split("."):
            value = value[name]
        return value

    def answer(self) -> Answer:
        """Return the finished answer."""
        return Answer(self.values, self.origins, self.given, tuple(self.notes))
