"""What a tokenizer's files do not say and its class implies: the roles of tokens, and what goes around a text.

The rows are the defaults of the classes that wrote the files (``transformers``, ``models/*/tokenization_*.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plait.text.byte_level import GPT2, PRE_TOKENIZERS, PreTokenizer

ROLES = ("bos", "eos", "pad", "unk", "cls", "sep", "mask")


@dataclass(frozen=True, kw_only=True)
class Convention:
    """The defaults of one tokenizer class.

    ``names``: role to token. ``before``, ``after``: the roles of the ids around a text. ``sentinels``: T5's
    ``<extra_id_0>`` and on, at the end of the vocabulary. ``prefix_each``: see ``PieceSegmenter``.
    """

    names: Mapping[str, str]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    pre: PreTokenizer = GPT2
    sentinels: int = 0
    prefix_each: bool = False
    mask_takes_space: bool = False


_ENDOFTEXT = {"bos": "<|endoftext|>", "eos": "<|endoftext|>", "unk": "<|endoftext|>"}
_BERT = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
_ROBERTA = {"bos": "<s>", "eos": "</s>", "sep": "</s>", "cls": "<s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask>"}

BYTE_LEVEL: dict[str, Convention] = {
    "GPT2Tokenizer": Convention(names=_ENDOFTEXT),
    "GPTNeoXTokenizer": Convention(names=_ENDOFTEXT),
    "RobertaTokenizer": Convention(names=_ROBERTA, before=("cls",), after=("sep",), mask_takes_space=True),
    "BartTokenizer": Convention(names=_ROBERTA, before=("cls",), after=("sep",), mask_takes_space=True),
    "Qwen2Tokenizer": Convention(
        names={"eos": "<|endoftext|>", "pad": "<|endoftext|>", "unk": "<|endoftext|>"}, pre=PRE_TOKENIZERS["qwen2"]
    ),
}
WORD_PIECE: dict[str, Convention] = {
    name: Convention(names=_BERT, before=("cls",), after=("sep",))
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
