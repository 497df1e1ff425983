"""What a tokenizer's files do not say and its class implies: the roles of tokens, and what goes around a text.

The rows are the defaults of the classes that wrote the files (``transformers``, ``models/*/tokenization_*.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from plait.text.byte_level import GPT2, PRE_TOKENIZERS, PreTokenizer
from plait.text.pairs import FORMS, Pair

ROLES = ("bos", "eos", "pad", "unk", "cls", "sep", "mask")


@dataclass(frozen=True, kw_only=True)
class Convention:
    """The defaults of one tokenizer class.

    ``names``: role to token. ``before``, ``after``: the roles of the ids around a text. ``sentinels``: T5's
    ``<extra_id_0>`` and on, at the end of the vocabulary. ``prefix_each``: see ``PieceSegmenter``. ``pair``: whose form
    two texts in one row have.
    """

    names: Mapping[str, str]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    pre: PreTokenizer = GPT2
    sentinels: int = 0
    prefix_each: bool = False
    mask_takes_space: bool = False
    pair: Literal["bert", "roberta"] | None = None

    def form(self, named: Mapping[str, int]) -> Pair | None:
        """Two texts in one row, by the ids of the roles."""
        return None if self.pair is None else FORMS[self.pair](named["cls"], named["sep"])


_ENDOFTEXT = {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"}
_BERT = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
_ROBERTA = {"bos": "<s>", "eos": "</s>", "sep": "</s>", "cls": "<s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"}

BYTE_LEVEL: dict[str, Convention] = {
    "GPT2Tokenizer": Convention(names=_ENDOFTEXT),
    "GPTNeoXTokenizer": Convention(names=_ENDOFTEXT),
    "RobertaTokenizer": Convention(
        names=_ROBERTA, before=("cls",), after=("sep",), mask_takes_space=True, pair="roberta"
    ),
    "BartTokenizer": Convention(names=_ROBERTA, before=("cls",), after=("sep",), mask_takes_space=True, pair="roberta"),
    "Qwen2Tokenizer": Convention(
        names={"eos": "<|endoftext|>", "pad": "<|endoftext|>", "unk": "<|endoftext|>"}, pre=PRE_TOKENIZERS["qwen2"]
    ),
}
WORD_PIECE: dict[str, Convention] = {
    name: Convention(names=_BERT, before=("cls",), after=("sep",), pair="bert")
    for name in ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")
}
PIECES: dict[str, Convention] = {
    "T5Tokenizer": Convention(
        names={"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}, after=("eos",), sentinels=100, prefix_each=True
    ),
    "LlamaTokenizer": Convention(names={"bos": "<s>", "eos": "</s>", "unk": "<unk>"}, before=("bos",)),
    "GemmaTokenizer": Convention(
        names={"bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>"}, before=("bos",)
    ),
}
MARIAN: dict[str, Convention] = {
    "MarianTokenizer": Convention(names={"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}, after=("eos",)),
}
