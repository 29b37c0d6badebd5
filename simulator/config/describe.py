"""Text for people: the available choices, and the keys or facts of each choice."""
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from simulator import registry
from simulator.config.describe_model import derived_lines
from simulator.config.experiment import Experiment
from simulator.config.fields import (
    NAME,
    Field,
    is_struct,
    parts_of,
    table_of,
    unit_in,
)
from simulator.config.keys import all_keys, named
from simulator.config.words import allowed_in, show
from simulator.domain import columns, facts, measured_acceptance
from simulator.errors import InputErrors, did_you_mean

# Units by the ending of a key's name; the longest ending counts. Other keys may declare a unit: see fields.py.
UNITS = {
    "_flops_per_s": "FLOP/s", "_bytes_per_s": "B/s", "_gb_per_s": "GB/s", "_gbps": "Gbit/s",
    "_tokens_per_s": "tokens/s", "_per_s": "1/s", "_per_hour": "1/h",
    "_gib": "GiB", "_s": "s", "_ms": "ms", "_us": "us", "_ns": "ns", "_bytes": "B", "_watts": "W",
    "tokens": "tokens", "block_size": "tokens", "max_model_len": "tokens", "_token_threshold": "tokens",
}
WIDTH, INDENT = 80, "    "      # of a terminal
LABELLED = ("default", "read by")     # cells of a paragraph that are shown after their heading
HEADINGS = ("key", "allowed", "default", "unit", "meaning")
TABLES = {"results_table": columns.TABLES, "study": registry.STUDIES, "acceptance": measured_acceptance.MEASURED}
FACTS = {"model": facts.load_model, "hardware": facts.load_accelerator, "node": facts.load_node}
TITLES = {"model": "model", "hardware": "hardware", "node": "node", "table": "table", "key": "key"} | {
    kind: entry.title for kind, entry in registry.KINDS.items()} | {
        "study": "study", "results_table": "results table", "acceptance": "acceptance"}


def list_text(kind: str | None = None, like: str = "") -> str:
    """Return the names of one kind, one a line; without one, of all kinds but keys.

    like : text that shown names of one kind contain, or their repositories on the hub; case does not matter.

    Raises
    ------
    InputErrors
        No such kind; `like` without a kind, or in no name.
    """
    if kind is not None:
        kind = kind_of(kind)
        found = [*names(kind), *(registry.installed(kind) if kind in registry.KINDS else ())]
        return "\n".join(_like(found, kind, like) if like else found)
    if like:
        raise InputErrors([f"--like {like}: needs the kind of names, as in `list models --like {like}`"])
    return "\n\n".join(_paragraph(each) for each in TITLES if each != "key")


def _like(found: list[str], kind: str, text: str) -> list[str]:
    """Return the names that contain a text, themselves or in their repository on the hub."""
    hub = facts.hub_ids().items() if kind == "model" else ()
    by_hub = {name for hub_id, name in hub if text.casefold() in hub_id.casefold()}
    like = [name for name in found if name in by_hub or text.casefold() in name.casefold()]
    if not like:
        raise InputErrors([f"no {TITLES[kind]} is like {show(text)}{did_you_mean(text, found)}"])
    return like


def describe_text(kind: str, name: str, read_config: Callable | None = None) -> str:
    """Return the text of one entry: a summary, its keys or facts, and its source.

    read_config : returns the model of a config.json; None: config.json files are not read.

    A key is shown with allowed values, default, unit and meaning; a fact with value and unit.

    Raises
    ------
    InputErrors
        No such kind or name.
    """
    kind = kind_of(kind)
    if kind in FACTS:
        is_config = kind == "model" and read_config is not None and name.endswith(".json")
        return _facts(kind, read_config(name) if is_config else FACTS[kind](name))
    if kind == "table":
        tables = all_tables()
        if name not in tables:
            raise InputErrors([f"no table {show(name)}{did_you_mean(name, tables)}"])
        return "\n\n".join(_entry(*entry) for entry in tables[name])
    if kind == "key":
        return _key(name)
    if kind == "results_table":
        return _results_table(name)
    if kind == "acceptance":
        if fault := measured_acceptance.fault(name):
            raise InputErrors([fault])
        return "\n".join(line for part in measured_acceptance.text_of(name).split("\n")
                         for line in textwrap.wrap(part, WIDTH, break_on_hyphens=False, break_long_words=False))
    if kind == "study":
        if name not in registry.STUDIES:
            raise InputErrors([f"no study {show(name)}{did_you_mean(name, registry.STUDIES)}"])
        return _entry(*_of_study(name))
    chosen = registry.load(kind, name, ("",))
    target = registry.KINDS[kind].entries.get(name, name)
    return _entry(f"{TITLES[kind]} {name} ({target})", registry.parameters_of(chosen), doc_of(chosen))


def names(kind: str) -> list[str]:
    """Return the built-in names of a kind."""
    if kind in FACTS:
        return facts.names(kind)
    if kind in TABLES:
        return list(TABLES[kind])
    if kind == "key":
        return list(dict.fromkeys(key.name for key in all_keys()))
    return list(all_tables() if kind == "table" else registry.KINDS[kind].entries)


def kind_of(word: str) -> str:
    """Return the kind that a word means: its name or title, one or many."""
    known = {}
    for kind, title in TITLES.items():
        for each in (kind, title):
            words = each.replace("_", " ")
            known |= {words.lower(): kind, plural(words).lower(): kind}
    asked = " ".join(word.lower().replace("_", " ").replace("-", " ").split())
    if asked not in known:
        raise InputErrors([f"no kind {show(word)}{did_you_mean(asked, TITLES)}"])
    return known[asked]


def plural(title: str) -> str:
    """Return the plural of a kind's title."""
    if title == "hardware":
        return title
    if " of " in title:
        head, _, rest = title.partition(" of ")
        return f"{plural(head)} of {rest}"
    if title.endswith("y") and title[-2] not in "aeiou":
        return title[:-1] + "ies"
    return title + ("es" if title.endswith("s") else "s")


def _paragraph(kind: str) -> str:
    entries = names(kind)
    lines = textwrap.wrap(", ".join(entries), WIDTH - 2, break_on_hyphens=False, break_long_words=False)
    return "\n  ".join([f"{plural(TITLES[kind])} ({len(entries)})", *lines])


def tables_of(struct: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, str, type[msgspec.Struct]]]:
    """Yield name, title and Struct of the tables of the experiment file."""
    yield prefix or "experiment", f"[{prefix}]" if prefix else "experiment", struct
    for field in table_of(struct).fields:
        name = f"{prefix}.{field.name}" if prefix else field.name
        for between, inner in parts_of(field.hint):
            if between == ".":
                yield from tables_of(inner, name)
            else:
                yield name, f"[[{name}]]" if between == "[]." else f"[{name}.{NAME}]", inner


def all_tables() -> dict[str, list[tuple[str, type[msgspec.Struct]]]]:
    """Return name -> titles and Structs of the tables of experiments and studies.

    They are several where kinds of study differ.
    """
    found: dict[str, list] = {name: [entry] for name, *entry in tables_of(Experiment)}
    for kind in registry.STUDIES:
        for name, title, struct in tables_of(registry.study_table(kind), "study"):
            entry = _of_study(kind) if name == "study" else (title, struct)
            if entry not in found.setdefault(name, []):
                found[name].append(entry)
    return found


def _of_study(kind: str) -> tuple[str, type[msgspec.Struct]]:
    return f'[study] with kind = "{kind}"', registry.study_table(kind)


def _results_table(name: str) -> str:
    if name not in columns.TABLES:
        raise InputErrors([f"no results table {show(name)}{did_you_mean(name, columns.TABLES)}"])
    return f"/{name} in results.h5\n\n{_columns([('column', 'unit', 'meaning'), *column_rows(name)])}"


def column_rows(table: str) -> list[tuple[str, str, str]]:
    """Return column, unit and meaning of each column of a results table."""
    labels = {field: ": " + ", ".join(filter(None, names)) for field, names in columns.CODES.get(table, {}).items()}
    further = {name: column for part in registry.parts() for name, column in part.columns.items()}
    return [(field, column.unit, column.text + labels.get(field, ""))
            for field, column in (columns.TABLES[table] | (further if table == "requests" else {})).items()]


def _key(name: str) -> str:
    """Return a paragraph for each table that has a key of this name: the readers and the meaning of the key."""
    found = named(name, all_keys())
    if not found:
        known = {each: each for each in names("key")} | {each.rpartition(".")[2]: each for each in names("key")}
        raise InputErrors([f"no key {show(name)}{did_you_mean(name, known)}"])
    readers = {}            # a key that several classes share is listed once, with all class names
    for key in found:
        readers.setdefault((key.name, *cells_of(key.field)), []).append(key.reader)
    places = {}
    for (path, *cells), who in readers.items():
        places.setdefault(path, []).append((_shortened(who), *cells))
    alike = {}              # a pool repeats tables of the experiment, with equal keys
    for path, rows in places.items():
        alike.setdefault(tuple(rows), []).append(path)
    return "\n\n".join(f"{_filled(', '.join(paths))}\n{_columns([('read by', *HEADINGS[1:]), *rows])}"
                       for rows, paths in alike.items())


def _shortened(readers: list[str]) -> str:
    """Return the readers as text, e.g. `schedulers edf, vllm`; "all" if the key does not depend on a choice."""
    kinds = {}
    for reader in dict.fromkeys(readers):
        title, _, choice = reader.rpartition(" ")
        kinds.setdefault(title, []).append(choice)
    return "; ".join(f"{plural(title) if len(who) > 1 else title} {', '.join(who)}" if title else "all"
                     for title, who in kinds.items())


def _entry(title: str, parameters: type[msgspec.Struct], text: str | None = None) -> str:
    about = [inspect.cleandoc(part) for part in (text, parameters.__doc__) if part]
    rows = [row for field in table_of(parameters).fields for row in rows_of(field)]
    keys = _columns([HEADINGS, *rows]) if rows else "It has no keys of its own."
    return "\n\n".join([_filled(title), *map(_filled, dict.fromkeys(about)), keys])


def doc_of(chosen: type) -> str:
    """Return the docstring of a class without Cython's signature before it."""
    text = inspect.cleandoc(chosen.__doc__ or "")
    return text.partition("\n")[2].lstrip() if text.startswith(f"{chosen.__name__}(") else text


def rows_of(field: Field, prefix: str = "") -> Iterator[tuple[str, ...]]:
    """Yield the row of a key, and the rows of keys in the tables it may hold."""
    name = prefix + field.name
    yield name, *cells_of(field)
    for between, struct in parts_of(field.hint):
        for inner in table_of(struct).fields:
            yield from rows_of(inner, name + between)


def cells_of(field: Field) -> tuple[str, ...]:
    """Return allowed values, default, unit and meaning of a key."""
    if field.required:
        default = "" if is_struct(field.hint) else "required"
    else:
        default = "" if field.default is None else show(field.default)
    return allowed_in(field), default, unit_in(field.hint) or unit_of(field.name), field.description


def _facts(kind: str, entry: msgspec.Struct) -> str:
    rows = [row for row in _leaves(entry) if row[0] not in ("name", "source", "note", "checkpoint_note")]
    about = [part for part in (entry.note, getattr(entry, "checkpoint_note", ""),
                               entry.source and f"Source: {entry.source}") if part]
    derived = ["\n".join(map(_filled, ["Counts that follow:", *derived_lines(entry)]))] if kind == "model" else []
    return "\n\n".join([f"{kind} {entry.name}", *map(_filled, about), _columns([("field", "value", "unit"), *rows]),
                        *derived])


def _leaves(struct: msgspec.Struct, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if isinstance(value, msgspec.Struct):
            yield from _leaves(value, f"{prefix}{field.name}.")
        elif value is not None:
            shown = f"{value:.10g}" if isinstance(value, float) else show(value)
            yield prefix + field.name, shown, unit_of(prefix + field.name)


def unit_of(name: str) -> str:
    """Return the unit that the ending of a name implies, or the empty text."""
    for part in reversed(name.split(".")):
        for ending in sorted(UNITS, key=len, reverse=True):
            if part.endswith(ending):
                return UNITS[ending]
    return ""


def _columns(rows: list[tuple[Any, ...]]) -> str:
    """Return rows as a table; if it is too wide for a terminal, as a paragraph per row."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if max(map(len, lines)) > WIDTH:
        lines = [line for row in rows[1:] for line in _paragraph_of(row, rows[0])]
    return "\n".join(lines)


def _paragraph_of(row: tuple[str, ...], headings: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of a row: the name and cells, then the last cell below."""
    name, *cells, last = (f"{heading} {cell}" if heading in LABELLED and cell not in ("", "required") else cell
                          for heading, cell in zip(headings, row, strict=True))
    yield from _wrapped("  ".join(filter(None, (name, *cells))))
    yield from _wrapped(last, INDENT)


def _wrapped(text: str, indent: str = "") -> list[str]:
    """Return a text wrapped to the width of a terminal, with all lines but the first indented."""
    return [line for part in text.splitlines() for line in textwrap.wrap(
        part, WIDTH, initial_indent=indent, subsequent_indent=INDENT, break_on_hyphens=False)]


def _filled(text: str) -> str:
    """Return paragraphs with overlong lines wrapped."""
    return "\n".join(line for part in text.splitlines() for line in (_wrapped(part) if len(part) > WIDTH else [part]))
