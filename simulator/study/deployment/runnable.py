"""The experiment of servers that the simulator can run, and the keys that it refuses."""
import re

from simulator.errors import InputErrors
from simulator.server_line.facts.flag_tables import ENGINES
from simulator.study.deployment.experiment_text import experiment_text
from simulator.study.deployment.from_server import Served
from simulator.study.deployment.refusals import refusals_of

POOL_OF_KV = "engine.num_gpu_blocks"            # the key of faults of memory


def runnable(served: list[Served], card: str) -> tuple[str, list[tuple[str, str, str]]]:
    """Return the experiment without keys that the simulator refuses.

    Second come rows with these keys and the reasons.
    """
    rows = []
    while True:
        text = experiment_text(_name(served), card, served)
        refused = refusals_of(text)
        if (why := refused.get(POOL_OF_KV)) is not None:
            if not _shortened(served, why):
                raise InputErrors([f"{ENGINES[served[0].launch.engine]} does not start: {why}"])
            continue
        found = [(server, key, why) for key, why in refused.items() for server in served
                 for written in list(server.keyed.keys) if written == key or written.startswith(f"{key}.")
                 if server.keyed.keys.pop(written, None)]
        if not found:
            return text, [*rows, *((key or "the experiment", "", why) for key, why in refused.items())]
        rows += [row for row in dict.fromkeys((key, "", why) for _, key, why in found) if row not in rows]


def _shortened(served: list[Served], why: str) -> bool:
    """Cut the length of servers with --max-model-len auto to the longest that fits; return whether one is cut."""
    longest = re.search(r"max_model_len <= (\d+)", why)
    automatic = [server for server in served if server.answer.given.get("max_model_len") == -1]
    if longest is None or not automatic:
        return False
    for server in automatic:
        server.keyed.keys["engine.max_model_len"] = (int(longest[1]), "engine: auto, the longest that the KV holds")
    return True


def _name(served: list[Served]) -> str:
    hub_id = str(served[0].answer.given.get("model", served[0].answer.given.get("model_path")))
    return hub_id.rpartition("/")[2].lower() or "server"
