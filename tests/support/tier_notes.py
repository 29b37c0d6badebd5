"""A router that writes down what it sees of tiers."""
import random

from simulator.routing.python_router import PythonRouter

SEEN = []


class Notes(PythonRouter):
    """Sends requests anywhere."""

    uses_tiers = True

    def choose(self, request, now_ns):
        """Compare the index with a plain walk over all tables; note what it says; draw a replica."""
        found = self.tier_blocks(request, now_ns)
        self.view.check(now_ns)
        SEEN.append((now_ns, request.row, found))
        is_open = self.accounts["is_routable"].nonzero()[0]
        return random.Random(request.row).choice(is_open) if len(is_open) else None
