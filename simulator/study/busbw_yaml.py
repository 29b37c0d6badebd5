"""SimAI's busbw.yaml, which is no regular YAML, as a table for TOML.

Its first line is ignored; then sections TP:, DP:, EP:, PP: with lines such as `allreduce,: 300`. The name ends at the
comma, `null` is "not given", PP has the one value `busbw`. DP or a section may be missing.
Source: aliyun/SimAI at d44c48bb, the last with this file, example/busbw.yaml.
"""
import math
from pathlib import Path

from simulator.errors import InputErrors, did_you_mean

SECTIONS = {"TP": "tensor", "DP": "data", "EP": "expert", "PP": "pipeline"}
KEYS = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
        "alltoall": "all_to_all"}


def read_busbw_yaml(path: str | Path) -> dict:
    """Return the file as a table [latency.collective]: bandwidths by group, GB/s.

    Raises
    ------
    InputErrors
        Every fault, with its line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputErrors([f"{path}: {getattr(error, 'strerror', None) or error}"]) from error
    table, faults, section = {}, [], ""
    for number, line in enumerate(lines[1:], 2):
        name, _, value = (part.strip() for part in line.partition(":"))
        if not name:
            continue
        try:
            if not value:
                section = _known(name, SECTIONS)
            else:
                _add(table, section, name.partition(",")[0], value)
        except ValueError as error:
            faults.append(f"{path}:{number}: {error}")
    if not table and not faults:
        faults.append(f"{path}: holds no bandwidth")
    if faults:
        raise InputErrors(faults)
    return table


def _add(table: dict, section: str, name: str, value: str) -> None:
    if not section:
        raise ValueError("expected a section, TP:, DP:, EP: or PP:, before values")
    key = "pipeline_gb_per_s" if section == "pipeline" and name == "busbw" else _known(name, KEYS)
    if value == "null":
        return
    group = table if section == "pipeline" else table.setdefault(section, {})
    group[key] = _bandwidth(name, value)


def _known(name: str, names: dict[str, str]) -> str:
    if name not in names:
        raise ValueError(f'unknown name "{name}"{did_you_mean(name, names)}')
    return names[name]


def _bandwidth(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 < value < math.inf:
        raise ValueError(f'{name}: expected GB/s > 0 or null, found "{text}"')
    return value
