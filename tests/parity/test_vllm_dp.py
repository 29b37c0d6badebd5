"""The choice of a data-parallel engine, as the real front end of vLLM 0.32 made it, event by event; see README.md."""
from collections import Counter

import pytest

from routing.faces import router_of, tell, view_of, workload
from support import goldens

KV_BLOCKS = 1000            # usage is logged in thousandths


def is_choice(path):
    return "engines" in goldens.known_scenario(path)


CASES = [path for path in goldens.case_paths() if is_choice(path)]


def census():
    """Return how many scenarios were recorded, and what those that are left out need."""
    return len(CASES), Counter()


class FrontEnd:
    """Our router between the events of a recorded scenario.

    A request with a rank goes there, one that is known goes where it went: neither is scored, nor counted among those
    that wait. What finishes is no more in flight.
    """

    def __init__(self, scenario):
        engines = scenario["engines"]
        self.where, self.counts, self.now_ns = {}, [[0, 0, 0.0]] * engines, 0
        names = list(dict.fromkeys(event[1] for event in scenario["events"] if event[0] == "route"))
        self.rows = {name: row for row, name in enumerate(names)}
        self.clients = scenario.get("client_count", 1)
        self.view = view_of(engines, num_blocks=KV_BLOCKS)
        self.router = router_of("vllm_dp", self.view, workload([1] * max(len(names), 1)), client_count=self.clients,
                                client_index=scenario.get("client_index", 0))

    def stats(self, counts):
        self.now_ns += 1
        self.counts = [list(count) for count in counts]
        tell(self.view, waiting=[count[0] for count in counts], running=[count[1] for count in counts],
             used_blocks=[round(count[2] * KV_BLOCKS) for count in counts], time_ns=self.now_ns)

    def route(self, name, rank=None):
        chosen = self.where.get(name, rank)
        if chosen is None:
            chosen = self.router.choose_replica(self.rows[name], self.now_ns)
            self.router.note_sent(self.rows[name], chosen, self.now_ns)
            self.counts = [list(count) for count in self.counts]
            self.counts[chosen][0] += self.clients
        if name not in self.where:
            self._hold(chosen, 1)
        self.where[name] = chosen
        return chosen

    def finish(self, names):
        for name in names:
            self._hold(self.where.pop(name), -1)

    def _hold(self, engine, change):
        self.view.account_array["in_flight"][engine] += change
        self.view.touch(engine)


@pytest.mark.skipif(not CASES, reason=f"no recorded choices under {goldens.GOLDENS}")
@pytest.mark.parametrize("path", CASES, ids=goldens.case_name)
def test_the_router_takes_the_engine_that_the_front_end_took(path):
    scenario = goldens.read_scenario(path)
    front_end = FrontEnd(scenario)
    for (kind, *what), recorded in zip(scenario["events"], goldens.read_log(path)["choices"], strict=True):
        found = getattr(front_end, kind)(*what)
        if recorded is not None:
            assert (found, front_end.counts) == (recorded[0], recorded[1]), (kind, what)
