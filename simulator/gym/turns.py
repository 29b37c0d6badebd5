"""The hand-over of decisions from the engine to an agent.

The engine asks in the midst of its loop, so that it cannot return to a caller at a decision: it runs on a stack of its
own, a greenlet, or where greenlet is not installed a thread. Engine and agent act in turn; results are equal both ways.
"""
import threading
from collections.abc import Callable
from typing import Any

try:
    import greenlet
except ImportError:
    greenlet = None

_here = threading.local()


class Abandoned(BaseException):
    """The agent has left the episode: the engine's run ends."""


class Turns:
    """Decisions of the engine and actions of an agent, in turn, in one thread each.

    work : runs the engine; its policies ask by `ask`.
    """

    def __init__(self, work: Callable[[], Any]):
        self._work = work
        self._decision: Any = None
        self._action: Any = None
        self._error: BaseException | None = None
        self._is_left = False
        self._prepare()

    # ---- called by the agent

    def begin(self) -> Any:
        """Start the engine; return its first decision, None: it has ended without one."""
        self._start()
        return self._next()

    def answer(self, action: Any) -> Any:
        """Give the action; return the next decision, None: the run has ended."""
        self._action, self._decision = action, None
        self._let_engine_act()
        return self._next()

    def leave(self) -> None:
        """End the engine's run, unless it has ended."""
        self._is_left = True
        self._end()

    def _next(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._decision

    # ---- called by the engine

    def ask(self, decision: Any) -> Any:
        """Hand over a decision; return the agent's action."""
        self._decision, _here.turns = decision, None        # all policies have been built
        self._let_agent_act()
        if self._is_left:
            raise Abandoned
        return self._action

    def _run(self) -> None:
        _here.turns = self
        try:
            self._work()
        except Abandoned:
            pass
        except BaseException as error:      # the agent raises it
            self._error = error
        self._decision = _here.turns = None

    # ---- two threads

    def _prepare(self) -> None:
        self._of_engine, self._of_agent = threading.Lock(), threading.Lock()
        self._of_engine.acquire()
        self._of_agent.acquire()
        self._thread = threading.Thread(target=self._run_in_thread, name="simulator.gym", daemon=True)

    def _run_in_thread(self) -> None:
        self._run()
        self._of_agent.release()

    def _start(self) -> None:
        self._thread.start()
        self._of_agent.acquire()

    def _let_engine_act(self) -> None:
        self._of_engine.release()
        self._of_agent.acquire()

    def _let_agent_act(self) -> None:
        self._of_agent.release()
        self._of_engine.acquire()

    def _end(self) -> None:
        if self._thread.is_alive():
            self._of_engine.release()
            self._thread.join()


class TurnsOnStacks(Turns):
    """The same in one thread, on two stacks."""

    def _prepare(self) -> None:
        self._agent, self._engine = None, greenlet.greenlet(self._run)

    def _start(self) -> None:
        self._let_engine_act()

    def _let_engine_act(self) -> None:
        self._agent = greenlet.getcurrent()
        self._engine.switch()

    def _let_agent_act(self) -> None:
        self._agent.switch()

    def _end(self) -> None:
        if self._engine:                    # it has begun, and not ended
            self._let_engine_act()


def turns_of(work: Callable[[], Any]) -> Turns:
    """Return turns on two stacks where greenlet is installed, else in two threads."""
    return Turns(work) if greenlet is None else TurnsOnStacks(work)


def turns_here() -> Turns:
    """Return the turns of the episode that this thread builds now.

    Raises
    ------
    RuntimeError
        No environment builds it.
    """
    found = getattr(_here, "turns", None)
    if found is None:
        raise RuntimeError("policies of simulator.gym run within its environments alone")
    return found
