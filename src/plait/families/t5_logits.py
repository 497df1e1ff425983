"""T5's logits: over the square root of the width or not, by one key of version 5 or by another before it."""

from plait.families.settings import Reading, Setting


def _scale(reading: Reading) -> float:
    """Version 5 writes scale_decoder_outputs, null for no; before, tie_word_embeddings = false meant no scale."""
    by_tie = reading.config.get("tie_word_embeddings") is not False
    scaled = reading.config.get("scale_decoder_outputs", by_tie)
    return reading["d_model"] ** -0.5 if scaled else 1.0


LOGIT_SCALE = Setting(("scale_decoder_outputs",), _scale, lambda scale, _: {"scale_decoder_outputs": scale != 1.0})
