"""Writer of docs/reference and docs/limitations.md, from the schema, the registry, the parsers, columns and conflicts.

`python tools/reference_pages.py` writes all pages; a test fails while they differ from its output.
"""
import argparse
import functools
import inspect
import re
import tomllib
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path

import simulator
from simulator import cli, registry, testing
from simulator.config import conflicts, describe
from simulator.config.experiment import Experiment
from simulator.config.fields import is_struct, table_of
from simulator.domain import columns, facts
from simulator.results.summary_keys import DISTRIBUTION, STATISTICS, all_keys

FOLDER = Path(__file__).parents[1] / "docs/reference"
LIMITATIONS = ("A key or command that is missing is refused by name. A missing column or file is absent. A setting of "
               "a table below is refused beside the other one, with the reason.")
MADE = "Made by `python tools/reference_pages.py`: change the code, not this page."
KEYS = ("key", "allowed", "default", "unit", "meaning")
TITLES = {                      # page -> its title and its first words
    "README": ("Reference", ""),
    "experiment": ("Tables of an experiment", "Each table of the TOML file with its fixed keys. Where a table chooses "
                   "something by name (a scheduler, a backend, a router), the keys of the chosen one are in that "
                   "table, too, and on the page of its kind. `[[name]]` is a table that may be repeated."),
    "studies": ("Tables of a study", "An experiment with a table `[study]` gets one answer from many runs."),
    "engine": ("Schedulers and KV tiers", "Chosen in `[engine]` and `[kv_tiers]`."),
    "latency": ("Latency backends", "Chosen in `[latency]` and `[latency.collective]`: the duration of an iteration."),
    "cluster": ("Policies of a cluster", "Chosen in `[cluster]` and `[autoscaling]`."),
    "workload": ("Workloads", "Chosen in `[workload]`: requests, and their arrivals."),
    "facts": ("Models, accelerators, nodes", "Names that `[model]`, `[hardware]` and `[topology] node` take. Each file "
              "names the source of its numbers; `python -m simulator describe model NAME` shows all of them."),
    "commands": ("Commands", "`python -m simulator COMMAND`, or `simulator COMMAND`. Exit status: 0 done; 1 a fault of "
                 "the program, or a run that was ended because nothing in it advanced: the simulated part is "
                 "written, and `diagnosis` names the stalled requests and replicas; 2 the input is wrong, nothing was "
                 "run; 128 + signal: interrupted, the simulated part is written; a second signal ends the process at "
                 "once, within 5 s at the latest. Of studies besides: 1 a run failed; 3 no answer: nothing passes "
                 "(`capacity`), qualifies (`tune`) or fits (`fit`); 4 no answer of `capacity`: too few requests to "
                 "tell whether it passes (`thin`); 75 stopped, run it again."),
    "api": ("Python", "The names of the package `simulator`: runs, predictions, studies and their results; "
            "contract tests of `simulator.testing`."),
    "results": ("Results", "`results.h5` has a table for each section below; a column that does not apply to a run is "
                "absent. Times are instants on the simulated clock unless they say \"duration\"; -1: it never "
                "happened. Then come the keys of `summary.json`."),
}
KINDS = {                       # page -> kinds of the registry on it
    "engine": ("scheduler", "kv_tier", "kv_eviction"),
    "latency": ("latency", "collective"),
    "cluster": ("admission", "saturation", "programs", "router", "filter", "scorer", "decider", "rescheduler",
                "autoscaler"),
    "workload": ("workload", "trace_format", "client_format", "arrival", "rate", "preset", "length_distribution",
                 "time_distribution", "vidur_interval", "vidur_length"),
}


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    made = {"README": _overview, "experiment": _experiment, "studies": _studies, "facts": _facts,
            "commands": _commands, "api": _api, "results": _results} | {page: _of_kinds(page) for page in KINDS}
    return {f"{page}.md": "\n\n".join(filter(None, [f"# {title}", MADE, lead, *made[page]()])) + "\n"
            for page, (title, lead) in TITLES.items()}


def limitations() -> str:
    """Return docs/limitations.md: features that are missing, and the rows of the table of conflicts."""
    missing = tomllib.loads((FOLDER.parent / "missing.toml").read_text(encoding="utf-8"))
    by_section = {}
    for row in conflicts.rows():
        if isinstance(row, conflicts.Conflict) and not row.other.is_absent:
            by_section.setdefault(_section(row.feature.key), []).append(_conflict(row))
    parts = ["# Limitations", MADE, LIMITATIONS]
    for section in map(_section, Experiment.__struct_fields__):
        if section.strip("[]") not in missing and section not in by_section:
            continue
        parts.append(f"## {code(section)}")
        parts += ["Missing:", "\n".join(f"- {each}" for each in missing[section.strip("[]")])
                  ] if section.strip("[]") in missing else []
        parts += [table(("setting", "not with", "reason"), dict.fromkeys(by_section[section]))
                  ] if section in by_section else []
    parts += ["## Pools that must agree", table(("keys", "of two pools", "reason"), (
        (", ".join(map(code, row.keys)), row.title, text(row.text)) for row in conflicts.rows()
        if isinstance(row, conflicts.Agreement)))]
    return "\n\n".join(parts) + "\n"


def _section(key: str) -> str:
    first = key.partition(".")[0].removesuffix("[]")
    return f"[[{first}]]" if first in ("pools", "failures") else "[[pools]]" if first == "role" else f"[{first}]"


def _conflict(row) -> tuple[str, str, str]:
    other = row.other.title if row.other.key.startswith(("pools", "engine.kv_cache_groups")) else (
        f"{row.other.title} ({code(row.other.key)})")
    reason = row.why if isinstance(row.why, str) else row.text
    return f"{text(row.feature.title)}: {code(row.feature.key)}", text(other), text(reason)


def _overview() -> Iterator[str]:
    yield table(("page", "content"), (
        (f"[{title}]({page}.md)", lead.partition(". ")[0].partition(": ")[0].rstrip(".") + ".")
        for page, (title, lead) in TITLES.items() if lead))
    yield ("Names, as in `python -m simulator list`; `python -m simulator describe KIND NAME` prints the content of "
           "these pages in a terminal.")
    yield table(("kind", "names", "page"), (
        (text(describe.plural(registry.KINDS[kind].title)), ", ".join(code(each) for each in describe.names(kind)),
         f"[{page}]({page}.md)") for page, kinds in KINDS.items() for kind in kinds))


def _experiment() -> Iterator[str]:
    seen = {}
    for name, title, struct in describe.tables_of(Experiment):
        yield f"## {code(title)}" if title != "experiment" else "## At the top of the file"
        if struct in seen:
            yield f"The keys of {code(seen[struct])}."
            continue
        seen[struct] = title
        chooser = table_of(struct)
        rows = [(field.name, *describe.cells_of(field)) for field in chooser.fields]
        inner = {field.name for field in chooser.fields if is_struct(field.hint)}
        yield from about(struct.__doc__)
        yield table(KEYS, ((code(f"{name}.{key}" if name != "experiment" else key), *cells(row, key in inner))
                           for key, *row in rows))
        if chooser.kind is not None:
            page = next(page for page, kinds in KINDS.items() if chooser.kind in kinds)
            yield (f"It also has the keys of the {text(registry.KINDS[chooser.kind].title)} that it chooses: "
                   f"[{TITLES[page][0]}]({page}.md).")


def _studies() -> Iterator[str]:
    sweep = registry.study_table("sweep")
    common = {row for field in table_of(sweep).fields for row in describe.rows_of(field)}
    for kind in registry.STUDIES:
        struct = registry.study_table(kind)
        rows = [row for field in table_of(struct).fields for row in describe.rows_of(field)]
        yield f"## `[study]` with `kind = \"{kind}\"`"
        yield from about(struct.__doc__)
        if kind != "sweep" and set(rows) & common:
            yield "It has the keys of a sweep, too, unless they are here with another meaning."
            rows = [row for row in rows if row not in common]
        yield table(KEYS, ((code(f"study.{key}"), *cells(row)) for key, *row in rows))


def _of_kinds(page: str):
    def sections() -> Iterator[str]:
        for kind in KINDS[page]:
            entry = registry.KINDS[kind]
            yield f"## {text(describe.plural(entry.title)).capitalize()}"
            yield f"The key {code(entry.key)} names one."
            for name in entry.entries:
                yield from _choice(kind, name)
    return sections


def _choice(kind: str, name: str) -> Iterator[str]:
    chosen = registry.load(kind, name, ("",))
    parameters = registry.parameters_of(chosen)
    yield f"### {registry.KINDS[kind].title} `{name}`"
    own = parameters.__doc__ if parameters is not registry.NoParameters else None
    yield from dict.fromkeys([*about(describe.doc_of(chosen)), *about(own)])
    rows = [row for field in table_of(parameters).fields for row in describe.rows_of(field)]
    yield table(KEYS, ((code(key), *cells(row)) for key, *row in rows)) if rows else "It has no keys of its own."


def _facts() -> Iterator[str]:
    yield "## Models"
    models = [facts.load_model(name) for name in facts.names("model")]
    yield table(("name", "parameters, billions", "layers", "longest context, tokens", "on the Hugging Face hub"), (
        (code(each.name), f"{each.num_parameters / 1e9:,.1f}", str(each.num_layers),
         f"{each.max_position_embeddings:,}", code(each.hf_id)) for each in models))
    yield "## Accelerators"
    accelerators = [facts.load_accelerator(name) for name in facts.names("hardware")]
    yield table(("name", "memory, GB", "memory bandwidth, GB/s", "dense bfloat16, TFLOP/s", "description"), (
        (code(each.name), f"{each.memory_bytes / 1e9:.1f}", f"{each.memory_bandwidth_bytes_per_s / 1e9:,.0f}",
         f"{each.dense_flops_per_s.bfloat16 / 1e12:,.0f}", text(f"{each.vendor} {each.title}"))
        for each in accelerators))
    yield "## Nodes"
    nodes = [facts.load_node(name) for name in facts.names("node")]
    yield table(("name", "accelerators", "of the kind", "link between them, GB/s each", "description"), (
        (code(each.name), str(each.num_accelerators), code(each.accelerator),
         f"{each.scaleup_bytes_per_s / 1e9:,.0f}", text(each.title)) for each in nodes))


def _commands() -> Iterator[str]:
    parser = cli.parser_of(*cli.STUDIES)
    for name, command, purpose in commands(parser):
        yield f"## {code(name)}" if " " not in name else f"### {code(name)}"
        yield text(purpose[:1].upper() + purpose[1:] + ("" if purpose.endswith(".") else "."))
        rows = [(code(words), text(default), text(help_)) for words, default, help_ in options(command)]
        if rows:
            yield table(("argument or option", "default", "meaning"), rows)


def commands(parser: argparse.ArgumentParser, before: str = "") -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Yield name, parser and purpose of each command of a parser, and of their subcommands."""
    for action in parser._actions:      # argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):
            purposes = {each.dest: each.help for each in action._choices_actions}
            for name, command in action.choices.items():
                yield before + name, command, purposes[name] or command.description
                yield from commands(command, f"{before}{name} ")


def options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, str]]:
    """Yield words, default and meaning of each argument and option."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        choices = f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper()
        takes = action.metavar or choices
        takes = " ".join(takes) if isinstance(takes, tuple) else takes
        words = ", ".join(action.option_strings) or takes
        if action.option_strings and action.nargs != 0:
            words += f" {takes}"
        default = action.default
        shown = "" if default in (None, False, [], (), argparse.SUPPRESS) else str(default)
        yield words, shown, (action.help or "").replace("%%", "%")


def _results() -> Iterator[str]:
    for name in columns.TABLES:
        yield f"## `/{name}`"
        yield table(("column", "unit", "meaning"),
                    ((code(column), text(unit), text(meaning)) for column, unit, meaning in describe.column_rows(name)))
    yield "## `summary.json`"
    yield (f"A path leads to a value: `NAME` is a name from the experiment, `[]` an item of a list. A "
           f"{DISTRIBUTION.strip(': ')} is a table with {', '.join(code(each) for each in STATISTICS)}.")
    yield table(("path", "unit", "meaning"),
                ((code(path), text(column.unit), text(column.text)) for path, column in all_keys().items()))


def _api() -> Iterator[str]:
    named = {name: getattr(simulator, name) for name in simulator.__all__ if not name.startswith("_")}
    returned = {each.__name__: each for function in named.values() if inspect.isfunction(function)
                if isinstance(each := typing.get_type_hints(function).get("return"), type)}
    things = {f"simulator.{name}": thing for name, thing in named.items()}
    things |= {name: thing for name, thing in returned.items() if thing not in named.values()}
    things |= {f"simulator.testing.{name}": getattr(testing, name) for name in testing.__all__}
    for name, thing in things.items():
        yield f"## {code(name)}"
        if isinstance(thing, int):
            yield from _constant(name.removeprefix("simulator."))
            continue
        yield from _described(name, thing)
        for method, function in _members(thing).items() if inspect.isclass(thing) else ():
            yield f"### {code(f'{thing.__name__}.{method}')}"
            is_property = not inspect.isfunction(function)
            called = getattr(function, "fget", None) or getattr(function, "func", function)
            yield from _described(f"{thing.__name__}.{method}", called, is_property)


def _constant(name: str) -> Iterator[str]:
    """Yield the value of a constant of the package, and the comment above it."""
    found = re.search(rf"((?:^#.*\n)+)^{name} = (.*)$", inspect.getsource(simulator), re.MULTILINE)
    yield f"```python\n{name} = {found[2]}\n```"
    yield text(re.sub(r"^# ", "", found[1], flags=re.MULTILINE).strip())


def _members(thing: type) -> dict[str, object]:
    """Return public methods and properties, those of base classes of this project first."""
    return {name: member for base in reversed(thing.__mro__) if base.__module__.startswith("simulator.")
            for name, member in vars(base).items() if not name.startswith("_")
            and (inspect.isfunction(member) or isinstance(member, (property, functools.cached_property)))}


def _described(name: str, thing, is_property: bool = False) -> Iterator[str]:
    """Yield signature, first words, and the sections of a docstring in NumPy's format."""
    if inspect.isfunction(thing) and not is_property:
        arguments = [each for each in inspect.signature(thing).parameters.values() if each.name != "self"]
        shown = ", ".join(f"{'*' * (each.kind // 2) if each.kind in (2, 4) else ''}{each.name}"
                          + (f"={each.default!r}" if each.default is not each.empty else "") for each in arguments)
        yield f"```python\n{name}({shown})\n```"
    words = inspect.cleandoc(thing.__doc__ or "")
    first, *sections = re.split(r"\n*^(\w[\w ]*)\n-{3,}\n", words, flags=re.MULTILINE)
    yield from about(first)
    for title, content in zip(sections[::2], sections[1::2], strict=True):
        yield f"**{title}**"
        yield _items(content.strip())


def _items(words: str) -> str:
    """Return the items of a docstring's section as a list; further lines of an item are indented."""
    return "\n".join(f"- {_item(each)}" for each in re.split(r"\n(?=\S)", words))


def _item(words: str) -> str:
    """Return an item of a docstring's section: names as code, then their text."""
    first, _, more = words.partition("\n")
    name, _, meaning = first.partition(" : ")
    meaning = " ".join([meaning, *more.split()]).strip()
    return f"{code(name)}: {text(meaning)}" if meaning else text(name)


def about(docstring: str | None) -> Iterator[str]:
    """Yield the paragraphs of a docstring as Markdown; indented ones stay as they are written."""
    words = re.sub(r"; see `\w+Parameters`|See `\w+Parameters`.", "", inspect.cleandoc(docstring or ""))
    for paragraph in re.split(r"\n\s*\n", words):
        if paragraph.startswith("    "):
            yield f"```text\n{inspect.cleandoc(paragraph)}\n```"
        elif re.match(r"\w+(, \w+)* : ", paragraph):
            yield _items(paragraph)
        elif paragraph:
            yield "\n".join(map(text, paragraph.splitlines()))


def cells(row: Iterable[str], is_inner: bool = False) -> list[str]:
    """Return allowed, default, unit and meaning as Markdown."""
    allowed, default, unit, meaning = row
    shown = default if default == "required" or default.startswith("a ") else code(default)
    return [text("a table, below" if is_inner else allowed), shown, text(unit), text(meaning)]


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table, with escaped pipes in its cells."""
    lines = [head, ["---"] * len(list(head)), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def code(words: str) -> str:
    """Return words as code; an empty text stays empty."""
    return f"`{words}`" if words else ""


def text(words: str) -> str:
    """Return plain words, escaped so that Markdown interprets nothing but code in backquotes."""
    parts = words.split("`")
    return "`".join(re.sub(r"[\\<*~]|\b_|_\b|\](?=\()", r"\\\g<0>", part) if i % 2 == 0 else part
                    for i, part in enumerate(parts))


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in pages().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
    (FOLDER.parent / "limitations.md").write_text(limitations(), encoding="utf-8")


if __name__ == "__main__":
    main()
