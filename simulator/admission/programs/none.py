"""No policy: each turn is routed as soon as it arrives; programs are only measured."""
from simulator.admission.programs.base import Go, ProgramPolicy


class Unmanaged(ProgramPolicy):
    """Each turn goes to the router at once."""

    def begin(self, program: int, prompt_tokens: int, now_ns: int, is_again: bool = False) -> Go:
        """See ProgramPolicy."""
        return Go(program)
