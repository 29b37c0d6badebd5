"""Notes on the encoders in front of a language model."""


def tower_notes(site) -> tuple[str, ...]:
    """Return the notes for readers of the predictions.

    site : assembly.site.Site of a pool.
    """
    return tuple(f"model: {line}" for line in unknown_towers(site.model))


def unknown_towers(model) -> list[str]:
    """Return a line on each encoder of a checkpoint that is left out.

    model : ModelSpec, or None.
    """
    return [f"{name}: an encoder of unknown kind; its weights and its work are counted as 0"
            for name in (model.unknown_towers or () if model is not None else ())]
