"""The encoders of T5's line by themselves, as embedders and image generators carry them."""

from plait.families.family import Family
from plait.families.mt5 import MT5, UMT5
from plait.families.t5 import T5


def alone(family: Family, bare: str) -> Family:
    """A family's encoder without decoder and head; what a file has of those is kept aside, as the class does."""
    return family.relative(
        f"{family.name}_encoder",
        model_types=family.model_types,
        classes=(bare, bare),
        settings={"n_decoder_layers": 0},
        leftovers=(r"decoder\..*", r"lm_head\.weight"),
        ignored=family.ignored | {"num_decoder_layers", "scale_decoder_outputs"},
    )


T5_ENCODER = alone(T5, "T5EncoderModel")
MT5_ENCODER = alone(MT5, "MT5EncoderModel")
UMT5_ENCODER = alone(UMT5, "UMT5EncoderModel")
