"""Routers that write down what is seen of tiers."""
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


class Leads(PythonRouter):
    """Sends requests where `places` says; before it sends any, `looks(context, row, now_ns)` may look."""

    uses_tiers = True
    places, looks = (), None

    def __init__(self, parameters, context):
        super().__init__(parameters, context)
        self.context = context

    def choose(self, request, now_ns):
        """Look; choose what was said."""
        if Leads.looks is not None:
            Leads.looks(self, self.context, request.row, now_ns)
        return Leads.places[request.row]
