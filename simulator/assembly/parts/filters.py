"""Remarks on filters that left no replica, for [[cluster.routing.filters]]."""
from collections import Counter

from simulator import registry
from simulator.assembly.parts.base import Part
from simulator.config.scorers import routing_tables


class RouterFilters(Part):
    """Counts of empty results of filters."""

    def report(self, run, cluster) -> None:
        """See Part."""
        names = {registry.load("filter", each.name): each.name
                 for _, table in routing_tables(self.experiment.cluster) for each in table.filters}
        emptied, fallbacks = Counter(), Counter()
        for gateway in cluster.gateways:
            router = getattr(gateway.router, "first", gateway.router)       # in front of data-parallel ranks
            for each in getattr(router, "filters", ()):
                emptied[names.get(type(each))] += each.num_emptied
                fallbacks[names.get(type(each))] += each.num_fallbacks
        run.diagnosis += [f"the filter {name} left no replica {_times(count)}: a request without a replica is retried "
                          "for retry_timeout_s, then rejected" for name, count in emptied.items() if count]
        run.diagnosis += [f"the filter {name} kept all replicas {_times(count)}, since none met its conditions"
                          for name, count in fallbacks.items() if count]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
