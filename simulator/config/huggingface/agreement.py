"""Whether a model read from a config.json agrees with the tensor files beside it."""
from msgspec.structs import replace

from simulator.config.huggingface.formats import ModuleFormats, read_formats
from simulator.config.huggingface.keys import Keys
from simulator.config.huggingface.tensor_files import TensorFiles
from simulator.config.huggingface.tensor_formats import decoder_parameters, matrices_of
from simulator.domain.deployment import Deployment
from simulator.domain.model_spec import ModelSpec
from simulator.domain.rank_weights import rank_weights
from simulator.errors import InputErrors

TOLERANCE = 0.01
GB = 1e9


def agreed(model: ModelSpec, keys: Keys) -> ModelSpec:
    """Return the model with the files as a source, and a note on their bytes.

    Raises
    ------
    InputErrors
        Parameters counted from tensors are more than 1 % from those that follow from the keys.
    """
    files = keys.files
    if files is None:
        return model
    if files.tensors is not None:
        _refuse_other_shape(model, files, read_formats(keys), keys.file)
    return replace(model, source=f"config.json, {files.source}", checkpoint_note="; ".join(
        filter(None, (model.checkpoint_note, _note(model, files)))))


def _refuse_other_shape(model: ModelSpec, files: TensorFiles, formats: ModuleFormats | None, file: str) -> None:
    matrices = formats.matrices if formats else matrices_of(files.tensors, "", lambda module: None)
    counted = decoder_parameters(matrices, model)
    own = model.num_parameters
    if abs(counted - own) > TOLERANCE * own:
        raise InputErrors([
            f"{file}: its keys make {own / 1e9:,.3f} G parameters, {files.source} hold {counted / 1e9:,.3f} G (without "
            f"drafter and tower): {(counted - own) / own:+.1%}, at most 1 % is allowed; the keys describe another "
            "model, or files are missing"])


def _note(model: ModelSpec, files: TensorFiles) -> str:
    """Return which files settle the model, and whether their bytes are those of the keys.

    A drafter's layers count in the files alone, with an embedding and a head of their own at most.
    """
    if files.total_bytes is None:
        return ""
    own = rank_weights(Deployment(model=model, accelerator=None)).num_bytes
    drafter = model.num_mtp_layers * (own / model.num_layers + 4 * model.vocab_size * model.hidden_size)
    head = 2 * model.vocab_size * model.hidden_size * model.tie_word_embeddings     # some files repeat the embedding
    least, most = own * (1 - TOLERANCE), (own + drafter + head) * (1 + TOLERANCE)
    found = f"{model.name}: {files.source}: {files.total_bytes / GB:.2f} GB of tensors"
    if least <= files.total_bytes <= most:
        return f"{found}, as the keys of config.json make"
    more = (own - files.total_bytes) / files.total_bytes
    return f"{found}, the keys of config.json make {own / GB:.2f} GB ({more:+.1%}): memory is planned with the latter"
