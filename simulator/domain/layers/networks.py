"""Feed-forward networks: dense, and mixtures of experts."""
from msgspec.structs import replace

from simulator.domain.layers.base import Count, Matrix, Part, Positive, Product, Small, divide


class Mlp(Part):
    """Dense feed-forward network: up (and gate) and down projection."""

    intermediate_size: Positive
    gated: bool = True                          # SwiGLU, GeGLU: three matrices; else two
    bias: bool = False
    activation_weights: Count = 0               # learned numbers of the activation, as of xIELU

    title = "MLP"
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
        return self.matrix_parameters(hidden_size) + bias + self.activation_weights

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


class Linear(Part):
    """One projection in place of attention or a network: replace_with_linear."""

    title = "linear"
    between_kernels = 1                         # norm
    small_operators = ()

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the projection."""
        return [Matrix("linear", hidden_size, hidden_size)]

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights."""
        return self.matrix_parameters(hidden_size)

    def products(self, hidden: int) -> list[Product]:
        """Return the product."""
        return [Product("linear", hidden, hidden)]

    def inner_elements(self, hidden: int) -> int:
        """Return the outputs."""
        return hidden

    def moved_elements(self, hidden: int) -> int:
        """Return none: the norm before it reads and writes."""
        return 0

    def shard(self, tensor_parallel: int) -> "Linear":
        """Return the part: each rank is taken to hold it whole; vLLM 0.33 builds none."""
        return self


class LatentProjections(Part):
    """Projections to the width of routed experts and back, whole on each rank."""

    width: Positive
    norm: bool = False                          # of tokens in that width

    between_kernels = property(lambda self: int(self.norm))
    small_operators = property(lambda self: [Small("latent_norm", 2 * self.width)] if self.norm else [])

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return both projections."""
        return [Matrix("latent_in", self.width, hidden_size), Matrix("latent_out", hidden_size, self.width)]

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: projections and the norm."""
        return self.matrix_parameters(hidden_size) + self.width * self.norm

    def products(self, hidden: int) -> list[Product]:
        """Return both products."""
        return [Product(each.name, each.outputs, each.inputs) for each in self.matrices(hidden)]

    def inner_elements(self, hidden: int) -> int:
        """Return the tokens in the width of the experts, and what these give."""
        return 2 * self.width

    moved_elements = inner_elements             # each is written once, and read by others

    def shard(self, tensor_parallel: int) -> "LatentProjections":
        """Return the part: it is whole on each rank."""
        return self


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
    latent_size: Count = 0                      # width that tokens have in routed experts; 0: that of the model
    latent_norm: bool = False                   # of tokens in that width
    zero_experts: Count = 0                     # beside num_experts, which the router may pick and which do nothing
    hash_vocabulary: Count = 0                  # tokens of a table that gives a token's experts; 0: the router picks

    title = "experts"
    has_experts = True

    def __post_init__(self):
        choice = self.num_experts + self.zero_experts
        faults = {
            f"num_groups = {self.num_groups} does not divide num_experts = {self.num_experts}":
                self.num_experts % self.num_groups,
            f"experts_per_token = {self.experts_per_token} is above num_experts = {self.num_experts}"
            + f" + zero_experts = {self.zero_experts}" * bool(self.zero_experts): self.experts_per_token > choice,
            "latent_norm = true: expected latent_size, its width": self.latent_norm and not self.latent_size,
            f"hash_vocabulary = {self.hash_vocabulary}: a table of experts leaves no router_bias":
                self.hash_vocabulary and self.router_bias,
        }
        if any(faults.values()):
            raise ValueError("; ".join(text for text, is_fault in faults.items() if is_fault))

    @property
    def expert(self) -> Mlp:
        """One routed expert, of tokens in `expert_width`."""
        return Mlp(intermediate_size=self.intermediate_size, gated=self.gated, bias=self.expert_bias)

    @property
    def shared_expert(self) -> Mlp | None:
        """All shared experts as one network, or None."""
        size = self.shared_intermediate_size
        return Mlp(intermediate_size=size, gated=self.gated) if size else None

    @property
    def latent(self) -> LatentProjections | None:
        """The projections around routed experts, or None."""
        return LatentProjections(width=self.latent_size, norm=self.latent_norm) if self.latent_size else None

    @property
    def computed_per_token(self) -> float:
        """Experts that compute a token, in the mean.

        Those that do nothing are taken to be picked as often as others.
        """
        return self.experts_per_token * self.num_experts / (self.num_experts + self.zero_experts)

    @property
    def table_bytes(self) -> int:
        """Bytes of the table of experts by token, of 64-bit indices."""
        return self.hash_vocabulary * self.experts_per_token * 8

    def expert_width(self, hidden_size: int) -> int:
        """Return the width of tokens in routed experts."""
        return self.latent_size or hidden_size

    def expert_matrix_parameters(self, hidden_size: int) -> int:
        """Count the weights of the projections of one routed expert."""
        return self.expert.matrix_parameters(self.expert_width(hidden_size))

    def expert_parameters(self, hidden_size: int) -> int:
        """Count all weights of one routed expert."""
        return self.expert.num_parameters(self.expert_width(hidden_size))

    @property
    def dense_parts(self) -> tuple[Part, ...]:
        """Parts beside the routed experts that see every token."""
        return tuple(part for part in (self.shared_expert, self.latent) if part)

    def router_parameters(self, hidden_size: int) -> int:
        """Count router, its bias and the shared gate; unquantised, on every rank."""
        choice = self.num_experts + self.zero_experts
        return choice * (hidden_size + self.router_bias) + hidden_size * self.shared_expert_gate

    def router_product(self, hidden_size: int) -> Product:
        """Return the product that scores experts, those that do nothing included."""
        return Product("router", self.num_experts + self.zero_experts, hidden_size, is_quantized=False)

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the projections of experts, shared ones, and those around experts."""
        shared = self.shared_expert.matrices(hidden_size) if self.shared_expert else []
        return [*(matrix._replace(name=f"experts.{matrix.name}", count=self.num_experts)
                  for matrix in self.expert.matrices(self.expert_width(hidden_size))),
                *(matrix._replace(name=f"shared.{matrix.name}") for matrix in shared),
                *(self.latent.matrices(hidden_size) if self.latent else [])]

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: experts, shared experts, projections around them, router."""
        beside = sum(part.num_parameters(hidden_size) for part in (self.shared_expert, self.latent) if part)
        return self.num_experts * self.expert_parameters(hidden_size) + beside + self.router_parameters(hidden_size)
