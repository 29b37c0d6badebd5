"""Write the flags of an engine's parser as engines/ENGINE-VERSION.toml, facts alone; run where the engine is installed.

    python tools/engine_flags.py vllm 0.33 > engines/vllm-0.33.toml
"""
import argparse
import contextlib
import json
import math
import re
import sys
from importlib.metadata import version

SIMPLE = {"int": "int", "float": "float", "str": "text", "loads": "json", "human_readable_int": "size",
          "human_readable_int_or_auto": "size_or_auto", "union_dict_and_str": "json_or_text", "json_list_type": "json"}
READS_NONE = ("int", "float", "size")
WRITTEN = re.compile(r"[A-Za-z0-9_-]+")


def parser_of(engine):
    """Return the parser of an engine's server."""
    if engine == "vllm":
        try:
            from vllm.entrypoints.common.cli_args import make_arg_parser
        except ImportError:                     # up to 0.32
            from vllm.entrypoints.launchers.cli_args import make_arg_parser
        from vllm.utils.argparse_utils import FlexibleArgumentParser
        return make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
    from sglang.srt.server_args import ServerArgs
    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    return parser


def kind_of(action):
    """Return the kind of an action's value, and the keys that an object may have."""
    name = type(action).__name__
    if name in ("EnableDisableAction", "BooleanOptionalAction"):
        return "switch", None
    if name in ("_StoreTrueAction", "_StoreFalseAction") or action.nargs == 0:
        return ("off" if name == "_StoreFalseAction" else "on"), None
    made, keys = action.type, None
    while getattr(made, "__closure__", None):
        cells = dict(zip(made.__code__.co_freevars, (cell.cell_contents for cell in made.__closure__)))
        if "return_type" not in cells:
            break
        made = cells["return_type"]
    if getattr(made, "__name__", "") == "parse_dataclass":
        keys = sorted(field for field in made.__defaults__[0].__dataclass_fields__ if not field.startswith("_"))
        return "object", keys
    return SIMPLE.get(getattr(made, "__name__", None), "text"), keys


def row_of(action):
    """Return the facts of one action."""
    kind, keys = kind_of(action)
    names = list(action.option_strings)
    row = {"kind": kind, "names": names}
    if kind == "switch":
        off = getattr(action, "negative_option_strings", {name for name in names if name.startswith("--no-")})
        row |= {"names": [name for name in names if name not in off], "off": sorted(off)}
    if action.nargs not in (None, 0):
        row["nargs"] = action.nargs
    if action.choices and kind not in ("on", "off"):
        row["choices"] = sorted(str(choice) for choice in action.choices if choice is not None)
    if keys:
        row["keys"] = keys
    default = action.default
    if (isinstance(default, (bool, int, float, str)) and default != argparse.SUPPRESS
            and not (isinstance(default, float) and math.isnan(default))):
        row["default"] = default
        if kind in READS_NONE and takes_none(action.type):
            row["optional"] = True
    return row


def takes_none(read):
    """Return whether an option's text may be None."""
    try:
        return read("None") is None
    except (TypeError, ValueError, argparse.ArgumentTypeError):
        return False


def written(value):
    """Return a TOML value."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return json.dumps(value)


def main():
    engine, number = sys.argv[1:]
    with contextlib.redirect_stdout(sys.stderr):
        actions = {action.dest: row_of(action) for action in parser_of(engine)._actions if action.option_strings
                   and action.dest != "help"}
    print(f'engine = "{engine}"\nversion = "{number}"\nrelease = "{version(engine)}"')
    print(f'source = "parser of {engine} {version(engine)}, read by tools/engine_flags.py"\n\n[flags]')
    for dest, row in sorted(actions.items()):
        print(f"{dest if WRITTEN.fullmatch(dest) else json.dumps(dest)} = {written(row)}")


if __name__ == "__main__":
    main()
