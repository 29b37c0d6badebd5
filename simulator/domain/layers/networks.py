"""Feed-forward networks: dense, and mixtures of experts."""
from msgspec.structs import replace

from simulator.domain.layers.base import Count, Matrix, Part, Positive, Product, Small, divide


class Mlp(Part):
    """Dense feed-forward network: up (and gate) and down projection."""

    intermediate_size: Positive
    gated: bool = True                          # SwiGLU, GeGLU: three matrices; else two
    bias: bool = False

    between_kernels = 2                         # norm, activation

    num_matrices = property(lambda self: 3 if self.gated else 2)

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the projections gate, up and down."""
        width = self.intermediate_size
        return [Matrix("gate", width * self.gated, hidden_size), Matrix("up", width, hidden_size),
                Matrix("down", hidden_size, width)]

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: projections and biases."""
        bias = ((self.num_matrices - 1) * self.intermediate_size + hidden_size) * self.bias
        return self.matrix_parameters(hidden_size) + bias

    def products(self, hidden: int) -> list[Product]:
        """Return the products up, with the gate, and down."""
        return [Product("up_gate", (self.num_matrices - 1) * self.intermediate_size, hidden),
                Product("down", hidden, self.intermediate_size)]

    small_operators = property(lambda self: [Small("activation", self.inner_elements(0))])

    def inner_elements(self, hidden: int) -> int:
        """Return the outputs of up and gate, and their product."""
        return self.num_matrices * self.intermediate_size

    moved_elements = inner_elements             # each is read or written once

    def split_widths(self):
        """Yield the width that ranks split."""
        yield "intermediate_size", self.intermediate_size

    def shard(self, tensor_parallel: int) -> "Mlp":
        """Return one rank's share of the intermediate size."""
        return replace(self, intermediate_size=divide(self.intermediate_size, tensor_parallel, "intermediate_size"))


class Moe(Part):
    """Mixture of experts: a router picks some, shared ones see every token."""

    num_experts: Positive
    experts_per_token: Positive
    intermediate_size: Positive                 # of one routed expert
    shared_intermediate_size: Count = 0         # of all shared experts together; 0: none
    shared_expert_gate: bool = False            # a sigmoid gate on the shared expert
    gated: bool = True
    expert_bias: bool = False
    router_bias: bool = False                   # a bias per expert, also the load-balancing correction of DeepSeek-V3
    num_groups: Positive = 1                    # of experts that follow one another: see experts/eplb.py

    def __post_init__(self):
        if self.num_experts % self.num_groups:
            raise ValueError(f"num_groups = {self.num_groups} does not divide num_experts = {self.num_experts}")
        if self.experts_per_token > self.num_experts:
            raise ValueError(f"experts_per_token = {self.experts_per_token} is above num_experts = {self.num_experts}")

    @property
    def expert(self) -> Mlp:
        """One routed expert."""
        return Mlp(intermediate_size=self.intermediate_size, gated=self.gated, bias=self.expert_bias)

    @property
    def shared_expert(self) -> Mlp | None:
        """All shared experts as one network, or None."""
        size = self.shared_intermediate_size
        return Mlp(intermediate_size=size, gated=self.gated) if size else None

    def router_parameters(self, hidden_size: int) -> int:
        """Count router, its bias and the shared gate; unquantised, on every rank."""
        return self.num_experts * (hidden_size + self.router_bias) + hidden_size * self.shared_expert_gate

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the projections of all experts, shared ones with their own prefix."""
        shared = self.shared_expert.matrices(hidden_size) if self.shared_expert else []
        return [matrix._replace(name=f"experts.{matrix.name}", count=self.num_experts)
                for matrix in self.expert.matrices(hidden_size)] + [
                matrix._replace(name=f"shared.{matrix.name}") for matrix in shared]

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: experts, shared experts, router."""
        shared = self.shared_expert.num_parameters(hidden_size) if self.shared_expert else 0
        return self.num_experts * self.expert.num_parameters(hidden_size) + shared + self.router_parameters(hidden_size)
