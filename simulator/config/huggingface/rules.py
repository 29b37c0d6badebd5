"""Rules that give modules a format, and the reading of a quantisation table into them."""
import re
from typing import Any, NamedTuple

from simulator.config.huggingface.keys import Keys
from simulator.config.huggingface.module_names import Patterns, Rows
from simulator.config.words import show
from simulator.domain.stored_format import Format
from simulator.errors import did_you_mean

WHERE = "quantization_config"
MATRICES = ("linear", "expert")
LISTS = ("ignore", "exclude_modules", "ignored_layers", "modules_to_not_convert", "llm_int8_skip_modules", "exclude")
LARGEST = 2**20


class Rule(NamedTuple):
    """Gives modules a format, or none.

    names : of the modules; None: all of `kinds`. Rows have formats of their own. kinds : of modules that the rule acts
    on (`module_names.kind_of`); (): on all.
    """

    format: Format | None
    names: Patterns | Rows | None = None
    kinds: tuple[str, ...] = MATRICES

    def decide(self, module: str, kind: str) -> tuple[bool, Format | None]:
        """Return whether the rule has the module, and its format."""
        if self.kinds and kind not in self.kinds:
            return False, None
        if isinstance(self.names, Rows):
            found = self.names.get(module)
            return found is not None, found
        return self.names is None or self.names.has(module), self.format


class Reading:
    """A quantisation table on its way to rules.

    Faults are left in the keys of its config.json.
    """

    def __init__(self, model: Keys, table: dict):
        self.model, self.table = model, table

    def get(self, names: str, default: Any = None, table: dict | None = None) -> Any:
        """Return the value of the first of `names` that is there and not null.

        table : inside the quantisation table, None: that table.
        """
        table = self.table if table is None else table
        return next((table[name] for name in names.split("|") if table.get(name) is not None), default)

    def fault(self, key: str, what: str):
        """Remember that a key of the table is wrong."""
        self.model.fault(f"{WHERE}.{key}" if key else WHERE, what)

    def number(self, names: str, default: int | None, table: dict | None = None, where: str = "") -> int | None:
        """Return an integer of the table, or of one inside it, from -1 on."""
        value = self.get(names, default, table)
        if type(value) is int and -1 <= value <= LARGEST:
            return value
        if value is not None or default is None:
            what = "required key is missing" if value is None else f"expected an integer, found {show(value)}"
            self.fault(where + names.split("|")[0], what)
        return None

    def one_of(self, key: str, value: Any, allowed: dict, unit: str = "") -> Any:
        """Return the entry of `allowed` for a value, or leave a fault."""
        if type(value) in (str, int) and value in allowed:
            return allowed[value]
        near = did_you_mean(value, allowed) if isinstance(value, str) else ""
        near = "" if near.startswith("; valid") else near
        self.fault(key, f"expected one of {', '.join(map(str, allowed))}{unit}, found {show(value)}{near}")
        return None

    def block(self, key: str, value: Any) -> tuple[int, int] | None:
        """Return rows and columns of a block; None without one, or for a fault."""
        if value is None:
            return None
        if (not isinstance(value, list) or len(value) != 2
                or not all(type(each) is int and 0 < each <= LARGEST for each in value)):
            self.fault(key, f"expected two positive integers, found {show(value)}")
            return None
        return value[0], value[1]

    def patterns(self, key: str, names: Any, anywhere: bool = False) -> Patterns:
        """Return a list of modules; other values and bad expressions are faults."""
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            self.fault(key, f"expected a list of module names, found {show(names)}")
            return Patterns(())
        return Patterns([each for each in names if not each.startswith("re:") or self.is_expression(key, each[3:])],
                        anywhere)

    def is_expression(self, key: str, text: str) -> bool:
        """Return whether a text is a regular expression, else leave a fault."""
        try:
            re.compile(text)
        except (re.error, RecursionError, OverflowError):
            self.fault(key, f"expected a regular expression, found {show(text)}")
            return False
        return True

    def left_out(self, anywhere: bool = False) -> list[Rule]:
        """Return the rules of the lists of modules that are not quantised."""
        found = [self.patterns(name, self.table[name], anywhere) for name in LISTS if self.table.get(name) is not None]
        return [Rule(None, names, ()) for names in found if names]


def rules_of(form: Format | None, kinds: tuple[str, ...] = MATRICES) -> list[Rule]:
    """Return the rule of a format for all modules of some kinds; [] without a format."""
    return [] if form is None else [Rule(form, kinds=kinds)]
