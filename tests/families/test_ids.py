"""What a family assumes about token ids and tokenizers is what the reference library's classes assume."""

from types import ModuleType

import pytest

from plait.families import FAMILIES
from plait.text.conventions import BYTE_LEVEL, MARIAN, PIECES, WORD_PIECE
from plait.text.renumbered import NUMBERINGS

KEYS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id",
        "forced_eos_token_id")  # fmt: skip
RENUMBERED = {*NUMBERINGS, "M2M100Tokenizer"}
EACH = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


@EACH
def test_ids_are_the_reference_classs(family, reference: ModuleType) -> None:
    if family.model_types[0] not in reference.CONFIG_MAPPING:
        pytest.skip("the library has no such class")
    config = reference.AutoConfig.for_model(family.model_types[0])
    theirs = {key: value for key in KEYS if (value := getattr(config, key, None)) is not None}
    if family.starts_with_pad and "decoder_start_token_id" in theirs:
        assert theirs.pop("decoder_start_token_id") == theirs["pad_token_id"]
    assert family.ids == theirs


@EACH
def test_every_tokenizer_class_has_a_convention(family) -> None:
    assert family.tokenizer is None or family.tokenizer in {*BYTE_LEVEL, *WORD_PIECE, *PIECES, *MARIAN, *RENUMBERED}
