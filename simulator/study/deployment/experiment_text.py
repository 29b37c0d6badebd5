"""Servers as the text of an experiment: TOML with a comment for each key."""
import json
from typing import Any

from simulator.study.deployment.from_server import PROTOCOLS, Served
from simulator.study.deployment.keyed import of_engine

OPENING = "# Written by `python -m simulator from`; comments say which part sets a value."
LENGTHS = (1000, 200)               # means of prompt and output, if the longest text allows
REQUESTS = 200


def experiment_text(name: str, card: str, served: list[Served]) -> str:
    """Return the experiment of some servers: one pool, or one for each."""
    keys = [of_engine(server.keyed.keys) for server in served]
    shared = {key: said for key, said in keys[0].items()
              if all(other.get(key, (None,))[0] == said[0] for other in keys[1:])}
    lines = [OPENING, f"# {_versions(served)}", f"name = {json.dumps(name)}", "seed = 42"]
    tree = _tree({"hardware.name": (card, "given: --gpu"), **shared})
    if len(served) == 1:
        tree.setdefault("topology", {})["replicas"] = (served[0].replicas, _replicas(served[0]))
    lines += _tables(tree, "")
    lines += _pools(served, shared) if len(served) > 1 else []
    lines += _transfer(served)
    lines += _tables(_tree(_serve_keys(served)), "")
    lines += ["", "[latency]", 'backend = "roofline"']
    lines += _workload(served)
    return "\n".join(lines) + "\n"


def _versions(served: list[Served]) -> str:
    return "; ".join(dict.fromkeys(f"{server.launch.engine} {server.version}: {server.why}" for server in served))


def _replicas(server: Served) -> str:
    return "given: replicas" if server.replicas != 1 else "one server"


def _tree(keys: dict[str, tuple[Any, str]]) -> dict:
    tree: dict = {}
    for key, said in keys.items():
        *path, last = key.split(".")
        table = tree
        for part in path:
            table = table.setdefault(part, {})
        table[last] = said
    return tree


def _tables(tree: dict, path: str) -> list[str]:
    """Return the tables of a tree, leaves before tables."""
    lines = []
    leaves = {key: said for key, said in tree.items() if isinstance(said, tuple)}
    if leaves and path:
        lines += ["", f"[{path}]"]
    lines += [_line(key, *said) for key, said in leaves.items()]
    for key, said in tree.items():
        if isinstance(said, dict):
            lines += _tables(said, f"{path}.{key}" if path else key)
    return lines


def _line(key: str, value: Any, why: str) -> str:
    text = f"{key} = {json.dumps(value, ensure_ascii=False)}"
    return f"{text}  # {' '.join(why.split())}" if why else text


def _pools(served: list[Served], shared: dict) -> list[str]:
    lines, names = [], set()
    for number, server in enumerate(served):
        name = server.launch.role if server.launch.role != "both" else f"server-{number}"
        name = name if name not in names else f"{name}-{number}"
        names.add(name)
        lines += ["", "[[pools]]", f"name = {json.dumps(name)}", _line("replicas", server.replicas, _replicas(server))]
        if server.launch.role != "both":
            lines.append(_line("role", server.launch.role, "given: the part of the server"))
        own = {key: said for key, said in of_engine(server.keyed.keys).items() if key not in shared}
        lines += _tables(_tree(own), "pools")
    return lines


def _transfer(served: list[Served]) -> list[str]:
    if {server.launch.role for server in served} < {"prefill", "decode"} or len(served) < 2:
        return []
    connector = next((name for server in served
                      if (name := (server.answer.values.get("kv_transfer") or {}).get("kv_connector"))), None)
    protocol = "sglang" if served[0].launch.engine == "sglang" else PROTOCOLS.get(connector, "nixl")
    return ["", "[kv_transfer]", _line("protocol", protocol, f"given: {connector}" if connector else "")]


def _serve_keys(served: list[Served]) -> dict[str, tuple[Any, str]]:
    """Return the keys of [serve], those of the first server that has some."""
    found = ({key: said for key, said in server.keyed.keys.items() if key.startswith("serve.")} for server in served)
    return next(filter(None, found), {})


def _workload(served: list[Served]) -> list[str]:
    """Return requests that fit: no command line describes requests."""
    longest = min(server.keyed.keys.get("engine.max_model_len", (8192, ""))[0] for server in served)
    prompt, output = (max(1, min(mean, longest // 8)) for mean in LENGTHS)
    lines = ["", "# Not of the server: describe your own requests here.", "[workload]", 'type = "synthetic"',
             f"num_requests = {REQUESTS}", "", "[workload.arrival]", 'process = "poisson"', "rate_per_s = 1.0"]
    for key, mean in (("prompt_tokens", prompt), ("output_tokens", output)):
        lines += ["", f"[workload.{key}]", 'distribution = "lognormal"', f"mean = {float(mean)}",
                  f"std = {mean * 0.8}", f"max = {max(1, min(4 * mean, longest // 3))}"]
    return lines
