"""A scheduler in Python that decides as `vllm` does by default, and a small engine to try others on."""
from simulator.domain import records
from simulator.latency.linear import Linear
from simulator.scheduling.python_scheduler import PythonScheduler, PythonSchedulerParameters
from support import engine


class Fcfs(PythonScheduler):
    """What `vllm` does by default: first come first served, chunked prefill, recomputation."""

    class Parameters(PythonSchedulerParameters, frozen=True):
        whole: bool = True

    def form_batch(self, batch, now_ns):
        for request in batch.running:
            if not (request.is_running and batch.budget and self.goes_on(request, batch)):
                break
        while not batch.num_preempted and batch.budget and batch.places and batch.waiting:
            if not batch.admit(batch.waiting[0], whole=self.parameters.whole):
                break

    def goes_on(self, request, batch):
        while not batch.run(request):
            victim = batch.running[-1]
            batch.preempt(victim)
            if victim is request:
                return False
        return True


def serve(scheduler, workload, **setup):
    """Run a scheduler of iterations of 5 ms over 10 blocks of 4 tokens, unless `setup` says otherwise."""
    latency = Linear(Linear.Parameters(base_us=5000.0, per_sequence_us=0.0, per_prefill_token_us=0.0,
                                       per_context_token_us=0.0))
    setup = {"block_size": 4, "num_gpu_blocks": 10, "max_model_len": 1000, "details": False} | setup
    parameters = setup.pop("parameters", None) or scheduler.Parameters()
    return engine.record(workload, parameters, latency, scheduler=scheduler, **setup)


def completed(recording):
    return (recording.requests["status"] == records.COMPLETED).all()
