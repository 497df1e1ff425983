"""Sentencepiece under other ids than the model's: fairseq's vocabularies (mBART, XLM-R, M2M-100) and Pegasus'.

Those that translate put the code of the text's language around it; ``Tokenizer.speaking`` takes another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from plait.text.conventions import Convention
from plait.text.error import TokenizerError
from plait.text.files import TokenizerFiles
from plait.text.pieces import MarianSegmenter, processor_of
from plait.text.tokenizer import Tokenizer

_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
_NAMES = {"bos": "<s>", "eos": "</s>", "sep": "</s>", "cls": "<s>", "unk": "<unk>", "pad": "<pad>"}
_BEFORE = Convention(names={**_NAMES, "mask": "<mask>"}, before=("language",), after=("eos",))
_AFTER = Convention(names={**_NAMES, "mask": "<mask>"}, after=("eos", "language"))
_NEVER = tuple(f"<unk_{i}>" for i in range(2, 103))  # of Pegasus, in pretraining alone


@dataclass(frozen=True, kw_only=True)
class Numbering:
    """``first``: the names of the first ids. Then the model's pieces from ``skipped`` on, each its number and
    ``offset``; then the languages, and the mask where it is ``mask_last``. ``language``: the usual one."""

    convention: Convention
    first: tuple[str, ...] = _FAIRSEQ
    offset: int = 1
    skipped: int = 3  # what the model itself has there
    mask_last: bool = True
    language: str | None = None

    def vocab(self, model: bytes, mask: str | None, languages: list[str]) -> dict[str, int]:
        """Every name and its id."""
        processor = processor_of(model)
        numbers = range(self.skipped, processor.GetPieceSize())
        vocab = {name: id for id, name in enumerate(self.first)}
        vocab |= {processor.IdToPiece(number): number + self.offset for number in numbers}
        last = [*languages, *([mask] if self.mask_last and mask else [])]
        return vocab | {name: id for id, name in enumerate(last, processor.GetPieceSize() + self.offset)}


NUMBERINGS: dict[str, Numbering] = {
    "XLMRobertaTokenizer": Numbering(
        convention=Convention(names={**_NAMES, "mask": "<mask>"}, before=("cls",), after=("sep",), pair="roberta")
    ),
    "MBartTokenizer": Numbering(convention=_AFTER, language="en_XX"),
    "MBart50Tokenizer": Numbering(convention=_BEFORE, language="en_XX"),
    "NllbTokenizer": Numbering(convention=_BEFORE, language="eng_Latn"),
    "PegasusTokenizer": Numbering(
        convention=Convention(
            names={"eos": "</s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask_2>"}, after=("eos",)
        ),
        first=("<pad>", "</s>", "<mask_1>", "<mask_2>", *_NEVER),
        offset=103,
        skipped=2,
        mask_last=False,
    ),
}
M2M_100 = Convention(names={k: v for k, v in _NAMES.items() if k != "cls"}, before=("language",), after=("eos",))


def renumbered(files: TokenizerFiles, name: str, write: Callable[[Path], None]) -> Tokenizer:
    """The tokenizer of a class in ``NUMBERINGS``, over the model in the file of that name."""
    row = NUMBERINGS[files.class_name or ""]
    names, model = files.names(row.convention.names), (files.folder / name).read_bytes()
    languages = _languages(files, names, {}) if row.language else []
    vocab = row.vocab(model, names.get("mask"), languages)
    return _named(files, model, vocab, names, row.convention, languages, row.language, write)


def named_pieces(files: TokenizerFiles, name: str, vocab: dict[str, int], write: Callable[[Path], None]) -> Tokenizer:
    """M2M-100's: ``vocab`` numbers the pieces, and the languages that the files list come after it."""
    names, model = files.names(M2M_100.names), (files.folder / name).read_bytes()
    languages = _languages(files, names, vocab)
    listed = {token.content: id for id, token in files.added().items()}
    usual = {language: len(vocab) + i for i, language in enumerate(languages)}
    ids = {id: name for name, id in vocab.items()}
    for language, id in usual.items():
        if (name := ids.setdefault(listed.get(language, id), language)) != language:
            raise TokenizerError(f"{files.folder}: {name!r} and {language!r} both have one id; each needs its own.")
    vocab = {name: id for id, name in ids.items()}
    return _named(files, model, vocab, names, M2M_100, languages, "en", write)


def _languages(files: TokenizerFiles, names: Mapping[str, str], vocab: Mapping[str, int]) -> list[str]:
    """The special tokens without a role, in the order of their ids."""
    found = [name for name in dict.fromkeys(files.special_names()) if name not in {*names.values(), *vocab}]
    if not found:
        raise TokenizerError(f"{files.folder}: its JSON files list no languages (additional_special_tokens).")
    return found


def _named(
    files: TokenizerFiles,
    model: bytes,
    vocab: Mapping[str, int],
    names: Mapping[str, str],
    convention: Convention,
    languages: list[str],
    usual: str | None,
    write: Callable[[Path], None],
) -> Tokenizer:
    named = {role: vocab[token] for role, token in names.items() if token in vocab}
    if languages:
        source = files.config.get("src_lang") or usual
        spelt = next((code for code in (source, f"__{source}__") if code in languages), None)
        if spelt is None:
            raise TokenizerError(f"{files.folder}: src_lang {source!r} is none of the languages that it lists.")
        named["language"] = vocab[spelt]
    special = [*names.values(), *languages]
    prefix, suffix = files.around(convention, named)
    return Tokenizer(
        segmenter=MarianSegmenter(model, vocab, unknown=files.unknown(names), special=special, codes=False),
        write=write,
        prefix=prefix,
        suffix=suffix,
        named=named,
        special_ids=frozenset(vocab[name] for name in special if name in vocab),
        pair=convention.form(named),
    )
