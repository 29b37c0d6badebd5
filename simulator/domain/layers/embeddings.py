"""Embeddings beside that of tokens: for each layer, and of runs of tokens. A token only reads its rows."""
from simulator.domain.layers.base import Matrix, Part, Positive, Product


class PerLayerEmbedding(Part, tag_field="kind", tag="per_layer"):
    """Rows with a share for each layer: Gemma-3n and Gemma-4 E.

    A projection of the hidden state is added to them. The layers' own weights are those of `residuals.PerLayerInput`.
    Source: Hugging Face's transformers, models/gemma3n.
    """

    vocab_size: Positive
    width: Positive                             # of the share of one layer
    num_layers: Positive

    row_elements = property(lambda self: self.width * self.num_layers)      # that a token reads
    table_parameters = property(lambda self: self.vocab_size * self.row_elements)

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the projection of the hidden state to the shares of all layers."""
        return [Matrix("per_layer_model_projection", self.row_elements, hidden_size)]

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: table, projection, its norm."""
        return self.table_parameters + self.matrix_parameters(hidden_size) + self.width

    def rank_parameters(self, hidden: int, tensor_parallel: int) -> float:
        """Count the weights of a rank.

        Words of the table and outputs of the projection are split.
        """
        return (self.table_parameters + self.matrix_parameters(hidden)) / tensor_parallel + self.width

    def products(self, hidden: int) -> list[Product]:
        """Return the product of the projection."""
        return [Product("per_layer_model_projection", self.row_elements, hidden)]

    def moved_elements(self, hidden: int) -> int:
        """Return the elements of rows, of the projection normalised, of their sum."""
        return 5 * self.row_elements


class NgramEmbedding(Part, tag_field="kind", tag="ngram"):
    """Tables of hashed runs of 2 to `longest` tokens.

    Their rows are projected and averaged with the token's own embedding. Source: LongCat-Flash-Lite in vLLM 0.33,
    vllm/model_executor/models/longcat_flash_ngram.py.
    """

    rows: Positive                              # of the first table; each further one has two more
    longest: Positive                           # emb_neighbor_num
    splits: Positive = 1                        # tables of each length: emb_split_num

    num_tables = property(lambda self: self.splits * (self.longest - 1))

    def __post_init__(self):
        if self.longest < 2:
            raise ValueError(f"longest = {self.longest}: expected 2 or more, since a run has at least 2 tokens")

    def table_parameters(self, hidden_size: int) -> int:
        """Count the elements of all tables."""
        tables = self.num_tables
        return sum(self.rows + 2 * table + 1 for table in range(tables)) * (hidden_size // tables)

    def matrices(self, hidden_size: int) -> list[Matrix]:
        """Return the projections, one a table; none is quantised."""
        return []

    def num_parameters(self, hidden_size: int) -> int:
        """Count all weights: tables and projections."""
        return self.table_parameters(hidden_size) + self.num_tables * (hidden_size // self.num_tables) * hidden_size

    def rank_parameters(self, hidden: int, tensor_parallel: int) -> float:
        """Count the weights of a rank: rows of the tables are split, projections whole."""
        table = self.table_parameters(hidden)
        return table / tensor_parallel + self.num_parameters(hidden) - table

    def products(self, hidden: int) -> list[Product]:
        """Return the products of the projections as one."""
        return [Product("ngram_projection", hidden, self.num_tables * (hidden // self.num_tables), is_quantized=False)]

    def moved_elements(self, hidden: int) -> int:
        """Return the elements of rows read, and of projections averaged."""
        return hidden + (2 * self.num_tables + 2) * hidden
