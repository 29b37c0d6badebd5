"""A scheduler of another package, in Python."""
from simulator.scheduling.python_scheduler import PythonScheduler


class Lifo(PythonScheduler):
    """Admits the newest request first; a running request keeps its blocks to the end."""

    def form_batch(self, batch, now_ns):
        for request in batch.running:
            if batch.budget:
                batch.run(request)
        promised = sum(batch.most_blocks(request) for request in batch.running)
        for request in reversed(batch.waiting):
            promised += batch.most_blocks(request)
            if promised > batch.num_blocks and batch.running:
                return
            if not (batch.places and batch.budget and batch.admit(request)):
                return
