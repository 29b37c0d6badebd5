"""Names that shells complete: of models, hardware, policies, keys and their values; and the shell functions.

A script contains all names: completing a word starts no program. shtab completes commands and options; the functions
here, in the language of each shell, complete names that depend on other words of the line.
"""
import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import inspect

from simulator import registry
from simulator.config import describe
from simulator.config.fields import NAME, Field, alternatives, extra_of, node_of
from simulator.config.keys import all_keys
from simulator.domain import facts
from simulator.results.summary_keys import number_names

DESCRIBED = "described"                 # the word after `describe`, or after its kind
KEY, SETTING, BOUND = "key", "setting", "bound"         # a key; SECTION.KEY=VALUE; a number of summary.json and "="
OWN_BOUNDS = ("goodput_share", "backlog")               # of --slo
FILE_KINDS = ("model", "hardware", "node")              # kinds with names that may also be files


class Names(NamedTuple):
    """All names.

    kinds : kind -> its names. keys : dotted, as for --set. values : of keys with a few allowed values.
    numbers : of summary.json.
    """

    kinds: dict[str, list[str]]
    keys: list[str]
    values: dict[str, list[str]]
    numbers: list[str]


def all_names() -> Names:
    """Return all names."""
    kinds = {kind: describe.names(kind) for kind in describe.TITLES}
    lists = [name for name, entries in describe.all_tables().items() if entries[0][0] == f"[[{name}]]"]
    found: dict[str, list[str]] = {}
    for key in all_keys():
        if NAME not in key.name.split("."):
            values = found.setdefault(_numbered(key.name, lists), [])
            values += [value for value in _values(key.field) if value not in values]
    numbers = [name for name in number_names() if NAME not in name and "*" not in name]
    return Names(kinds, list(found), {key: values for key, values in found.items() if values}, numbers)


def _numbered(key: str, lists: Iterable[str]) -> str:
    """Return a key with item number 0 inserted after each list in it."""
    for name in sorted(lists, key=len, reverse=True):
        if key.startswith(f"{name}."):
            key = f"{name}.0.{key.removeprefix(f'{name}.')}"
    return key


def _values(field: Field) -> Iterator[str]:
    if field.names_kind is not None:
        yield from registry.KINDS[field.names_kind].entries
    elif (kind := extra_of(field.hint).get("facts")) is not None:
        yield from facts.names(kind)
    for option in alternatives(field.hint):
        match node_of(option):
            case inspect.BoolType():
                yield from ("true", "false")
            case inspect.LiteralType(values):
                yield from map(str, values)


def functions(shell: str, names: Names) -> str:
    """Return the functions of a shell: names by kind, values by key, words."""
    made = FORMS[shell]
    parts = {"NAMES": _cases(names.kinds, made.case), "VALUES": _cases(names.values, made.case),
             "KINDS": " ".join(names.kinds), "KEYS": " ".join(names.keys),
             "NUMBERS": " ".join([*names.numbers, *OWN_BOUNDS]),
             "OF_KINDS": _each(names.kinds, made.of_kind), "OF_FILES": _each(FILE_KINDS, made.of_file)}
    text = made.text
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text


def _cases(table: dict[str, list[str]], form: str) -> str:
    return "\n".join(form.replace("KEY", shlex.quote(key)).replace("WORDS", " ".join(map(shlex.quote, values)))
                     for key, values in table.items())


def _each(kinds: Iterable[str], form: str) -> str:
    return "\n".join(form.replace("KIND", kind) for kind in kinds)


class Form(NamedTuple):
    """Templates in the language of one shell.

    text : the functions, with @NAME@ for inserted names. case : a branch over KEY and WORDS.
    of_kind, of_file : the function for a KIND of names, and for a KIND that may also be a file.
    """

    text: str
    case: str
    of_kind: str = ""
    of_file: str = ""


BASH = r"""
_simulator_names() { case "$1" in
@NAMES@
esac; }
_simulator_values() { case "$1" in
@VALUES@
esac; }
_simulator_kinds="@KINDS@"
_simulator_keys="@KEYS@"
_simulator_numbers="@NUMBERS@"
_simulator_key() { compgen -W "$_simulator_keys" -- "$1"; }
@OF_KINDS@
@OF_FILES@
# The words from --set or --slo on are KEY, =, VALUE: three where "=" breaks words, else one.
_simulator_assigned() {    # $1: names before "=", $2: whether names of values are known, $3: index of the option
  local at=$(( $3 + 1 )) word="${COMP_WORDS[COMP_CWORD]}"
  [[ ${COMP_WORDS[at]} == "=" && at -lt COMP_CWORD ]] && at=$(( at + 1 ))
  compopt -o nospace 2>/dev/null
  if [[ at -eq COMP_CWORD && $word == *=* && $word != "=" ]]; then
    [[ $2 ]] && COMPREPLY=($(compgen -P "${word%%=*}=" -W "$(_simulator_values "${word%%=*}")" -- "${word#*=}"))
  elif [[ at -eq COMP_CWORD ]]; then
    COMPREPLY=($(compgen -S = -W "$1" -- "${word#=}"))
  elif [[ ${COMP_WORDS[at + 1]} == "=" && COMP_CWORD -le $(( at + 2 )) ]]; then
    compopt +o nospace 2>/dev/null
    [[ $word == "=" ]] && word=""
    [[ $2 ]] && COMPREPLY=($(compgen -W "$(_simulator_values "${COMP_WORDS[at]}")" -- "$word"))
  else
    return 1
  fi
  return 0
}

_simulator() {
  local word="${COMP_WORDS[COMP_CWORD]}" i kind
  for (( i = COMP_CWORD - 1; i > 1 && i >= COMP_CWORD - 4; i-- )); do
    COMPREPLY=()
    case "${COMP_WORDS[i]}" in
      --set) _simulator_sets " ${COMP_WORDS[1]} " && _simulator_assigned "$_simulator_keys" 1 "$i" && return ;;
      --slo) _simulator_assigned "$_simulator_numbers" "" "$i" && return ;;
    esac
  done
  if [[ COMP_CWORD -ge 2 && ( ${COMP_WORDS[1]} == describe || ${COMP_WORDS[1]} == list ) && $word != -* ]]; then
    if [[ COMP_CWORD -eq 2 ]]; then
      COMPREPLY=($(compgen -W "$_simulator_kinds" -- "$word"))
    elif [[ ${COMP_WORDS[1]} == describe ]]; then
      kind="${COMP_WORDS[*]:2:COMP_CWORD-2}"; kind="${kind//[- ]/_}"
      COMPREPLY=($(compgen -W "$(_simulator_names "$kind")" -- "$word"))
      case "$kind" in model|hardware|node)
        compopt -o filenames 2>/dev/null
        while IFS= read -r i; do COMPREPLY+=("$i"); done < <(compgen -f -- "$word") ;;
      esac
    fi
    return
  fi
  # shtab counts words: "--set KEY = VALUE" counts as two.
  local -a whole=()
  for (( i = 0; i < COMP_CWORD; i++ )); do
    if [[ ${COMP_WORDS[i]} == "=" && ${#whole[@]} -gt 0 ]]; then
      whole[${#whole[@]}-1]+="=${COMP_WORDS[i + 1]}"; i=$(( i + 1 ))
    else
      whole+=("${COMP_WORDS[i]}")
    fi
  done
  local -a COMP_WORDS=("${whole[@]}" "$word")
  local COMP_CWORD=${#whole[@]}
  _shtab_simulator "$@"
}
_shtab_compgen_files() { compgen -f -- "$1"; }      # a name may hold blanks
_shtab_compgen_dirs() { compgen -d -- "$1"; }
complete -o bashdefault -F _simulator simulator
"""


ZSH = r"""
_simulator_names() { case "$1" in
@NAMES@
*) reply=() ;;
esac; }
_simulator_values() { case "$1" in
@VALUES@
*) reply=() ;;
esac; }
_simulator_kinds=(@KINDS@)
_simulator_keys=(@KEYS@)
_simulator_numbers=(@NUMBERS@)
@OF_KINDS@
@OF_FILES@
_simulator_key() { compadd -a _simulator_keys; }
_simulator_setting() {
  local -a reply
  if [[ $PREFIX == *=* ]]; then
    _simulator_values "${PREFIX%%=*}"
    compset -P '*='
    compadd -a reply
  else
    compadd -q -S = -a _simulator_keys
  fi
}
_simulator_bound() { [[ $PREFIX == *=* ]] || compadd -q -S = -a _simulator_numbers; }
_simulator_described() {
  local -a reply told
  local at=${words[(i)describe]}
  (( at > $#words )) && at=${words[(i)list]}
  (( at > $#words )) && at=0
  told=(${words[at + 1,CURRENT - 1]})
  if (( $#told == 0 )); then
    compadd -a _simulator_kinds
  else
    _simulator_names "${${(j:_:)told}//-/_}"
    compadd -a reply
    case "${(j:_:)told}" in model|hardware|node) _files ;; esac
  fi
}
"""


FISH = r"""
function _simulator_names
  switch "$argv[1]"
@NAMES@
  end
end
function _simulator_values
  switch "$argv[1]"
@VALUES@
  end
end
set -g _simulator_kinds @KINDS@
set -g _simulator_keys @KEYS@
set -g _simulator_numbers @NUMBERS@
function _simulator_setting
  set -l word (commandline -ct)
  if string match -q '*=*' -- $word
    set -l key (string split -m1 = -- $word)[1]
    for each in (_simulator_values $key)
      echo $key=$each
    end
  else
    printf '%s=\n' $_simulator_keys
  end
end
function _simulator_bound
  printf '%s=\n' $_simulator_numbers
end
function _simulator_file_or
  _simulator_names $argv[1]
  __fish_complete_path (commandline -ct)
end
function _simulator_described
  set -l told (commandline -opc)[3..-1]
  if test (count $told) -eq 0
    printf '%s\n' $_simulator_kinds
  else
    set -l kind (string join _ -- $told | string replace -a -- - _)
    _simulator_names $kind
    contains -- $kind model hardware node; and __fish_complete_path (commandline -ct)
  end
end
"""


FORMS = {
    "bash": Form(BASH, "KEY) printf '%s\\n' WORDS ;;",
                 '_simulator_kind_KIND() { compgen -W "$(_simulator_names KIND)" -- "$1"; }',
                 '_simulator_file_or_KIND() { _simulator_kind_KIND "$1"; compgen -f -- "$1"; }'),
    "zsh": Form(ZSH, "KEY) reply=(WORDS) ;;",
                "_simulator_kind_KIND() { local -a reply; _simulator_names KIND; compadd -a reply; }",
                "_simulator_file_or_KIND() { _simulator_kind_KIND; _files; }"),
    "fish": Form(FISH, "    case KEY\n      printf '%s\\n' WORDS")}


def completers() -> dict[str, dict[str, str]]:
    """Return the functions for shtab by type of a word: a kind, KEY, SETTING, BOUND.

    In bash `_simulator` completes some words before shtab is called.
    """
    made = {kind: {"bash": f"_simulator_kind_{kind}", "zsh": f"_simulator_kind_{kind}",
                   "fish": f"(_simulator_names {kind})"} for kind in describe.TITLES}
    made |= {kind: {"bash": f"_simulator_file_or_{kind}", "zsh": f"_simulator_file_or_{kind}",
                    "fish": f"(_simulator_file_or {kind})"} for kind in FILE_KINDS}
    made[KEY] = {"bash": "_simulator_key", "zsh": "_simulator_key", "fish": "(printf '%s\\n' $_simulator_keys)"}
    for word in (SETTING, BOUND, DESCRIBED):
        made[word] = {"zsh": f"_simulator_{word}", "fish": f"(_simulator_{word})"}
    return made
