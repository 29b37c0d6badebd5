"""Times of torch.distributed's collectives: a process for each accelerator, NCCL between GPUs, Gloo on the processor.

The processes of a group live until another number of ranks is needed. A call takes the time of the slowest rank;
rank 0 sets the number of calls in a repeat, and of repeats, so that all ranks do equal work. On GPUs calls are
replayed from a CUDA graph if the library can be captured. Buffers are reused and may be in a cache, as in a serving
engine: activations were written just before.

Bytes count as in nccl-tests and collective/base.pxd; elements are bfloat16.
"""
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from simulator.profiling.plan import Point
from simulator.profiling.session import NotMeasured
from simulator.profiling.timing import Effort, Measurement, num_calls, summary

ANSWER_S = 120.0                # after which a group that does not answer is ended
START_S = 300.0                 # of processes: imports, contexts, connections
LEAVE_S = 5.0                   # for processes to end after the request to do so
MIN_CALLS = 2


class Collectives:
    """Measures points of the table `nccl`; use it as a context.

    Parameters
    ----------
    torch : the module.
    device : cuda or cpu.

    Attributes
    ----------
    processes : of the present group, by rank.
    """

    def __init__(self, torch, device: str, effort: Effort):
        self._torch, self._device, self._effort = torch, device, effort
        self.processes: list = []
        self._ranks, self._pipes = 0, []
        self._folder: tempfile.TemporaryDirectory | None = None
        self._broken: dict[int, str] = {}       # ranks -> the reason why they have no group

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __call__(self, point: Point) -> tuple[str, Measurement]:
        """Return the library and the time of a point.

        Raises
        ------
        NotMeasured
            Too few devices, or the library does not answer.
        """
        kind, _, ranks, elements = point.cells
        if self._device == "cuda" and ranks > self._torch.cuda.device_count():
            raise NotMeasured(f"{ranks} ranks need as many GPUs, this machine has {self._torch.cuda.device_count()}")
        if ranks in self._broken:
            raise NotMeasured(self._broken[ranks])
        if ranks != self._ranks:
            self._open(ranks)
        found = self._asked((kind, elements), ANSWER_S)
        return library(self._torch, self._device), Measurement(*found)

    def close(self, is_well: bool = True) -> None:
        """End the processes; processes that do not answer, at once."""
        for pipe in self._pipes:
            with suppress(OSError):
                pipe.send(None)
                pipe.close()
        for process in self.processes:
            process.join(LEAVE_S if is_well else 0.0)
            if process.is_alive():
                process.kill()
                process.join()
        if self._folder is not None:
            self._folder.cleanup()
        self._ranks, self.processes, self._pipes, self._folder = 0, [], [], None

    def _open(self, ranks: int) -> None:
        self.close()
        context = self._torch.multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory(prefix="simulator-collectives-")
        meeting = str(Path(self._folder.name) / "meeting")
        self._ranks = ranks
        for rank in range(ranks):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, daemon=True,
                                      args=(theirs, rank, ranks, self._device, meeting, self._effort))
            process.start()
            theirs.close()
            self.processes.append(process)
            self._pipes.append(ours)
        try:
            self._answers(START_S)
        except NotMeasured as reason:
            self._broken[ranks] = str(reason)
            raise

    def _asked(self, request: tuple, timeout_s: float) -> tuple:
        for pipe in self._pipes:
            with suppress(OSError):
                pipe.send(request)
        return self._answers(timeout_s)[0]

    def _answers(self, timeout_s: float) -> list:
        """Return the answer of each rank; if a rank fails or is silent, end the group."""
        until, ranks, found = time.monotonic() + timeout_s, self._ranks, []
        for rank, pipe in enumerate(self._pipes):
            try:
                if not pipe.poll(max(until - time.monotonic(), 0.0)):
                    raise TimeoutError(f"no answer in {timeout_s:g} s")
                is_well, answer = pipe.recv()
            except (EOFError, OSError) as error:
                is_well, answer = False, str(error) or "its process ended"
            if not is_well:
                self.close(is_well=False)
                raise NotMeasured(f"collectives of {ranks} ranks: rank {rank}: {answer}")
            found.append(answer)
        return found


def library(torch, device: str) -> str:
    """Return the name of the collectives' library, with its version if it has one."""
    if device == "cpu":
        return f"gloo of torch {torch.__version__}"
    return "nccl " + ".".join(map(str, torch.cuda.nccl.version()))


def serve(pipe, rank: int, ranks: int, device: str, meeting: str, effort: Effort) -> None:
    """Be one rank: time each request from the pipe until None arrives."""
    import torch  # in a process of its own

    try:
        member = Member(torch, rank, ranks, device, meeting, effort)
        pipe.send((True, None))
    except Exception as error:                  # of any kind: the parent waits for an answer
        pipe.send((False, _error_text(error)))
        return
    with suppress(EOFError, OSError):
        while (request := pipe.recv()) is not None:
            try:
                pipe.send((True, tuple(member.measure(*request))))
            except Exception as error:          # as above; the group is out of step, and the parent ends it
                pipe.send((False, _error_text(error)))
                return
        member.leave()


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


class Member:
    """One rank of a group."""

    def __init__(self, torch, rank: int, ranks: int, device: str, meeting: str, effort: Effort):
        self._torch, self._ranks, self._effort, self._device = torch, ranks, effort, device
        self._distributed = distributed = torch.distributed
        if device == "cuda":
            torch.cuda.set_device(rank)
        distributed.init_process_group(
            "nccl" if device == "cuda" else "gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks,
            timeout=timedelta(seconds=ANSWER_S))
        self._control = distributed.new_group(backend="gloo")       # ranks agree on values outside the timed group

    def leave(self) -> None:
        """Leave the group."""
        self._distributed.destroy_process_group()

    def measure(self, kind: str, elements: int) -> Measurement:
        """Return the time of a collective, equal on all ranks."""
        run = self._call(kind, elements)
        for _ in range(MIN_CALLS):              # connections, choice of algorithms
            run()
        estimate_s = self._timed(run, 1)
        calls = max(num_calls(estimate_s, self._effort), MIN_CALLS)
        replay, timing = self._captured(run, calls)
        effort = self._effort
        repeats = min(effort.repeats, max(effort.min_repeats, int(effort.point_s / (calls * estimate_s))))
        return summary([self._timed(replay, calls) for _ in range(repeats)], timing)

    def _call(self, kind: str, elements: int) -> Callable[[], object]:
        """Return a function that runs a collective of `elements` elements once."""
        distributed, part = self._distributed, max(elements // self._ranks, 1)
        gather = getattr(distributed, "all_gather_single", distributed.all_gather_into_tensor)
        scatter = getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor
        if kind == "all_reduce":
            whole = self._zeros(elements)
            return lambda: distributed.all_reduce(whole)
        whole = self._zeros(part * self._ranks)
        if kind == "alltoall":
            received = self._zeros(part * self._ranks)
            return lambda: distributed.all_to_all_single(received, whole)
        own = self._zeros(part)
        return (lambda: gather(whole, own)) if kind == "all_gather" else (lambda: scatter(own, whole))

    def _zeros(self, count: int):
        return self._torch.zeros(count, dtype=self._torch.bfloat16, device=self._device)

    def _captured(self, run: Callable, calls: int) -> tuple[Callable, str]:
        """Return a function that runs all calls, from a CUDA graph if all ranks captured one; and the way of timing."""
        def one_by_one():
            for _ in range(calls):
                run()
        if self._device == "cpu":
            return one_by_one, "perf_counter"
        graph = self._torch.cuda.CUDAGraph()
        try:
            with self._torch.cuda.graph(graph):
                one_by_one()
            is_captured = 1.0
        except RuntimeError:
            self._torch.cuda.synchronize()
            is_captured = 0.0
        if self._agreed(is_captured, self._distributed.ReduceOp.MIN):
            return graph.replay, "cuda_graph"
        return one_by_one, "cuda_events"

    def _timed(self, run: Callable, calls: int) -> float:
        """Return the seconds per call, of `calls` calls, on the slowest rank."""
        self._distributed.barrier(group=self._control)
        if self._device == "cpu":
            began_s = time.perf_counter()
            run()
            spent_s = time.perf_counter() - began_s
        else:
            cuda = self._torch.cuda
            began, ended = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            began.record()
            run()
            ended.record()
            ended.synchronize()
            spent_s = began.elapsed_time(ended) * 1e-3
        return max(self._agreed(spent_s, self._distributed.ReduceOp.MAX), 1e-9) / calls

    def _agreed(self, value: float, how) -> float:
        number = self._torch.tensor([value], dtype=self._torch.float64)
        self._distributed.all_reduce(number, op=how, group=self._control)
        return float(number)
