"""Find and read the fact files: models/, hardware/ and hardware/nodes/, or a user's file in that format."""
import re
import types
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import msgspec
import tomli
from msgspec.structs import replace

from simulator.domain.hardware_spec import ANY, AcceleratorSpec, NodeSpec
from simulator.domain.hub_names import bare, format_of
from simulator.domain.model_spec import ModelSpec
from simulator.domain.near_facts import end_of, near, near_file
from simulator.errors import InputErrors, KeyFault, did_you_mean

_INSTALLED = Path(__file__).parents[1] / "_facts"       # in a wheel
_CHECKOUT = Path(__file__).parents[2]
_HUB_IDS = re.compile(r"^(?:hf_id|aliases) = (\[[^]]*\]|.+)$", re.MULTILINE)
FOLDERS = {"model": "models", "hardware": "hardware", "node": "hardware/nodes"}
MOST_UNNAMED = 8                # accelerators of a server of no known type: as many as any board or PCIe chassis holds
MOST_KEPT = 64                  # files kept parsed: a study reads them again in every run


def shipped(folder: str) -> Path:
    """Return a folder of the checkout, or its copy in a wheel.

    folder : models, hardware or configs.
    """
    return (_INSTALLED if _INSTALLED.is_dir() else _CHECKOUT) / folder


def folder(kind: str) -> Path:
    """Return the folder of the built-in files of a kind: model, hardware or node."""
    return shipped(FOLDERS[kind])


def names(kind: str) -> list[str]:
    """Return the sorted names of all built-in facts: model, hardware or node."""
    return list(_names(folder(kind)))


@cache
def _names(place: Path) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in place.glob("*.toml")))


@cache
def hub_ids() -> dict[str, str]:
    """Return {repository on the Hugging Face hub: name in models/}.

    Repositories of models go before aliases.
    """
    found = {name: [each for lines in _HUB_IDS.findall((folder("model") / f"{name}.toml").read_text(encoding="utf-8"))
                    for each in re.findall(r'"(.+?)"', lines)] for name in names("model")}
    own = {ids[0]: name for name, ids in found.items() if ids}
    return own | {each: name for name, ids in found.items() for each in ids if each not in own}


def name_of_hub_id(kind: str, hub_id: str) -> str | None:
    """Return the name in models/ of a repository on the hub; None: it has none.

    Raises
    ------
    InputErrors
        There is no such file either, and the text resembles a repository, which is named; or is a variant of a model.
    """
    if kind != "model" or hub_id in hub_ids():
        return hub_ids().get(hub_id) if kind == "model" else None
    if hub_id.endswith(".toml") or Path(hub_id).expanduser().exists():
        return None
    meant = near(hub_id, hub_ids())
    if (end := _variant(hub_id) or (meant and f"did you mean {meant}?")) is not None:
        raise InputErrors([f'no {kind} "{hub_id}" in {FOLDERS[kind]}/; {end}'])
    return None


def _variant(hub_id: str) -> str | None:
    """Say which model has the shape of a repository, and in which format that is stored.

    None: no model in models/ has it.
    """
    known = {bare(each): each for each in names("model") if format_of(each) is None}
    by_hub = {bare(each): name for each, name in hub_ids().items() if format_of(each) is None}
    name, form = (by_hub | known).get(bare(hub_id)), format_of(hub_id)
    if name is None or near(hub_id, [name]) is None:
        return None
    stored = f' with dtype = "{form.stored}"' if form is not None else ""
    return f'of its shape is name = "{name}"{stored}; its longest text may differ'


def load_model(name_or_path: str | Path) -> ModelSpec:
    """Return a model: by name in models/, repository on the hub, or path.

    Raises
    ------
    InputErrors
        No such model, or the file does not hold one; every fault, with file and key.
    """
    return _load("model", name_or_path, ModelSpec)


def load_accelerator(name_or_path: str | Path) -> AcceleratorSpec:
    """Return an accelerator, by name in hardware/ or by path; see `load_model`."""
    return _load("hardware", name_or_path, AcceleratorSpec)


def load_node(name_or_path: str | Path) -> NodeSpec:
    """Return a node type, by name in hardware/nodes/ or path; see `load_model`."""
    return _load("node", name_or_path, NodeSpec)


def load_node_with(accelerator: AcceleratorSpec | None, name_or_path: str | Path, key: str) -> NodeSpec:
    """Return a node type that holds `accelerator`; None: any accelerator.

    Raises
    ------
    InputErrors
        The node holds another accelerator, so that its links do not apply; named `key`, with the nodes that fit.
    """
    node = load_node(name_or_path)
    if accelerator is None or node.holds(accelerator):
        return node
    fitting = [name for name in names("node") if load_node(name).holds(accelerator)]
    there = f"nodes of {accelerator.name}: {', '.join(fitting)}" if fitting else f"no node holds {accelerator.name}"
    raise InputErrors([KeyFault(
        f"{key}: {node.name} holds {node.accelerator}, the accelerator is {accelerator.name}; {there}; "
        f'a node file of your own may say accelerator = "{accelerator.name}" or "{ANY}"')])


def reach_of(accelerator: AcceleratorSpec) -> int:
    """Return how many accelerators their own links join.

    Those of a scale-up fabric; without one, of a server.
    """
    if not accelerator.node:
        return MOST_UNNAMED
    node = load_node(accelerator.node)
    return node.scaleup_domain_size if accelerator.scaleup_bytes_per_s else node.joined


def _load(kind: str, name_or_path: str | Path, struct: type):
    path = path_of(kind, str(name_or_path))
    try:
        return _parsed(struct, path, path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise InputErrors([missing(kind, str(name_or_path), path)]) from error
    except (OSError, UnicodeDecodeError, tomli.TOMLDecodeError) as error:
        raise InputErrors([f"{path}: {getattr(error, 'strerror', None) or error}"]) from error


@lru_cache(MOST_KEPT)
def _parsed(struct: type, path: Path, text: str):
    """Return the content of a file; cached, since a run asks five times, and so does each run of a study."""
    facts = read_table(tomli.loads(text), struct, path)
    return facts if facts.name else replace(facts, name=path.stem)


def path_of(kind: str, name: str) -> Path:
    """Return the file of a model, accelerator or node.

    name : in its folder, of a repository on the hub, or a path.

    Raises
    ------
    InputErrors
        No such name.
    """
    if name.endswith(".toml") or "/" in name:
        known = name_of_hub_id(kind, name)
        return folder(kind) / f"{known}.toml" if known else Path(name)
    path = folder(kind) / f"{name}.toml"
    if not path.is_file() and name not in (known := names(kind)):
        raise InputErrors([f'no {kind} "{name}" in {FOLDERS[kind]}/{end_of(name, known)}'])
    return path


def missing(kind: str, name: str, path: Path) -> str:
    """Return a message that a user's file of a kind is not there.

    Parameters
    ----------
    name : as it was given. path : where that is.
    """
    close = near_file(path)
    hint = f"; did you mean {path.with_name(close)}?" if close else end_of(name, names(kind))
    or_repository = ", nor a repository on the hub that is known" if kind == "model" and path.suffix != ".toml" else ""
    return f'no file "{path}"{or_repository}{hint}'


def read_table(table: dict, struct: type, file: str | Path):
    """Return `table` as a `struct`, or raise InputErrors with all its faults."""
    faults = [f"{file}: {key}: {what}" for key, what in _faults(table, struct, "")]
    if not faults:
        try:
            return msgspec.convert(table, struct)
        except msgspec.ValidationError as error:
            faults = [f"{file}: {_lower(error)}"]
    raise InputErrors(faults)


def _faults(table: dict, struct: type, prefix: str):
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    tag = struct.__struct_config__.tag_field
    for key in table:
        if key not in fields and key != tag:
            yield prefix + key, "unknown key" + did_you_mean(key, fields)
    for key, field in fields.items():
        if key not in table:
            if field.required:
                yield prefix + key, "required key is missing"
        else:
            yield from _value_faults(table[key], field.type, prefix + key)


def _value_faults(value: Any, hint: Any, key: str):
    structs = _structs(hint) if isinstance(value, dict) else []
    if len(structs) == 1:
        yield from _faults(value, structs[0], key + ".")
    elif structs:
        tag_field = structs[0].__struct_config__.tag_field
        by_tag = {each.__struct_config__.tag: each for each in structs}
        yield from _tagged_faults(value, by_tag, tag_field, key)
    else:
        try:
            msgspec.convert(value, hint)
        except msgspec.ValidationError as error:
            yield key, _lower(error)


def _tagged_faults(table: dict, by_tag: dict, tag_field: str, key: str):
    tag = table.get(tag_field)
    if not isinstance(tag, str):
        yield f"{key}.{tag_field}", f"expected one of {', '.join(by_tag)}"
    elif tag not in by_tag:
        yield f"{key}.{tag_field}", f'unknown "{tag}"{did_you_mean(tag, by_tag)}'
    else:
        yield from _faults(table, by_tag[tag], key + ".")


def _structs(hint: Any) -> list[type]:
    """Return the Structs among the types that an annotation allows."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return [each for each in options if isinstance(each, type) and issubclass(each, msgspec.Struct)]


def _lower(error: Exception) -> str:
    text = str(error)
    return text[:1].lower() + text[1:]
