"""A tokenizer from the files of a folder: the first kind of vocabulary that is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

from plait.text.byt5 import BYT5, byt5
from plait.text.byte_level import byte_level
from plait.text.conventions import BYTE_LEVEL, MARIAN, PIECES, WORD_PIECE, Convention
from plait.text.error import TokenizerError
from plait.text.files import TokenizerFiles, read_json, read_text
from plait.text.ids import MOST_IDS, is_id
from plait.text.library import LibrarySegmenter, specials_of
from plait.text.pairs import pair_of
from plait.text.pieces import MarianSegmenter, PieceSegmenter, processor_of
from plait.text.renumbered import NUMBERINGS, named_pieces, renumbered
from plait.text.tiktoken import is_ranks, library_of, read_ranks
from plait.text.tokenizer import Tokenizer
from plait.text.wire import PieceType, pieces_of_type
from plait.text.word_piece import word_piece

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "target_vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "source.spm",
    "target.spm",
    "chat_template.json",
    "chat_template.jinja",
)


TARGET = "target_tokenizer"  # of a tokenizer's folder: the folder of its ``target``


def load_tokenizer(folder: str | Path, usual: str | None = None) -> Tokenizer | None:
    """The tokenizer of a folder, or None where it holds none; its ``target`` is in the folder ``target_tokenizer``.

    ``usual``: the tokenizer's class (``"BertTokenizer"``) where the files do not name one.

    Read are ``tokenizer.json``; ``source.spm`` with ``target.spm`` and ``vocab.json`` (Marian); ``vocab.json`` with
    ``merges.txt`` (byte-level BPE); ``vocab.txt`` (WordPiece); ``spiece.model``, ``tokenizer.model`` or the only
    ``*.model`` (sentencepiece); the only ``*.tiktoken``, or ranks in a ``tokenizer.model``; and the JSON files beside
    them. Raises TokenizerError where a file cannot be meant.
    """
    folder = Path(folder)
    found = _load(folder, usual)
    target = _load(folder / TARGET, usual) if found is not None else None
    return found if found is None or target is None else with_target(found, target)


def with_target(source: Tokenizer, target: Tokenizer) -> Tokenizer:
    """The tokenizer of sources beside that of targets; both are saved."""

    def write(folder: Path) -> None:
        source.save(folder)
        target.save(folder / TARGET)

    return replace(source, target=target, write=write)


def _load(folder: Path, usual: str | None) -> Tokenizer | None:
    for names, read in _KINDS:
        if all((folder / name).is_file() for name in names):
            return read(TokenizerFiles(folder, usual))
    ranks = sorted(folder.glob("*.tiktoken"))
    if len(ranks) == 1:
        return _ranks(TokenizerFiles(folder, usual), ranks[0])
    files, models = TokenizerFiles(folder, usual), sorted(folder.glob("*.model"))
    if files.class_name == BYT5:
        return byt5(files, _writer(folder))
    return _pieces(files, models[0].name) if len(models) == 1 else None


def vocabularies(folder: Path) -> list[str]:
    """The names of a folder's files that hold a vocabulary, of whatever kind."""
    return sorted(path.name for pattern in _VOCABULARIES for path in folder.glob(pattern))


_VOCABULARIES = ("vocab*.json", "vocab*.txt", "merges.txt", "*.model", "*.spm", "*.tiktoken")


def _tokenizer_json(files: TokenizerFiles) -> Tokenizer:
    path = files.folder / "tokenizer.json"
    try:
        library = Library.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the library's is no Exception
        shown = " ".join(str(error).split())
        raise TokenizerError(f"{path}: the tokenizers library cannot read it ({shown}).") from None
    for id, token in library.get_added_tokens_decoder().items():
        if not is_id(id):
            raise TokenizerError(
                f"{path}: the added token {token.content!r} has the id {id}; it must be below {MOST_IDS:,}."
            )
    return _over_library(files, library, files.names())


def _byte_level(files: TokenizerFiles) -> Tokenizer:
    folder = files.folder
    vocab = _vocab(folder / "vocab.json")
    default = "RobertaTokenizer" if {"<s>", "</s>", "<mask>"} <= vocab.keys() else "GPT2Tokenizer"
    convention = files.convention(BYTE_LEVEL, default, "vocab.json with merges.txt")
    lines = read_text(folder / "merges.txt").split("\n")
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    if any(len(pair) != 2 for pair in pairs):
        raise TokenizerError(f"{folder / 'merges.txt'}: a line must be two tokens with a space between.")
    names = files.names(convention.names)
    space = files.switch("add_prefix_space") or False
    library = byte_level(vocab, [(left, right) for left, right in pairs], convention.pre, add_prefix_space=space)
    if convention.mask_takes_space and names.get("mask") in vocab:
        library.add_tokens([AddedToken(names["mask"], lstrip=True, special=True, normalized=False)])
    return _over_library(files, library, names, convention)


def _word_piece(files: TokenizerFiles) -> Tokenizer:
    folder = files.folder
    convention = files.convention(WORD_PIECE, "BertTokenizer", "vocab.txt")
    names = files.names(convention.names)
    lines = read_text(folder / "vocab.txt").removesuffix("\n").split("\n")
    vocab = {line.rstrip("\r"): id for id, line in enumerate(lines)}
    library = word_piece(
        vocab,
        unknown=files.unknown(names),
        lowercase=files.switch("do_lower_case") is not False,
        strip_accents=files.switch("strip_accents"),
        splits_chinese=files.switch("tokenize_chinese_chars") is not False,
    )
    return _over_library(files, library, names, convention)


def _over_library(
    files: TokenizerFiles, library: Library, names: Mapping[str, str], convention: Convention | None = None
) -> Tokenizer:
    for id, token in files.added().items():
        library.add_tokens([token])
        if library.token_to_id(token.content) != id:
            raise TokenizerError(
                f"{files.folder}: the added token {token.content!r} should have the id {id}, and the vocabulary "
                f"gives it {library.token_to_id(token.content)}."
            )
    implied = (name for name in names.values() if library.token_to_id(name) is not None)
    known = {token.content for token in library.get_added_tokens_decoder().values()}
    special = [name for name in dict.fromkeys((*implied, *files.special_names())) if name not in known]
    library.add_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    template = files.chat_template(names)
    added = [token.content for token in library.get_added_tokens_decoder().values()]
    control = [name for name in added if template is not None and template.controls(name)]
    segmenter = LibrarySegmenter(library, control)
    named = {role: id for role, name in names.items() if (id := library.token_to_id(name)) is not None}
    # A tokenizer.json says itself what goes around a text, whatever add_bos_token says beside it.
    prefix, suffix = files.around(convention, named) if convention is not None else specials_of(library)
    return Tokenizer(
        segmenter=segmenter,
        write=_writer(files.folder),
        prefix=prefix,
        suffix=suffix,
        named=named,
        special_ids=segmenter.special_ids | frozenset(named.values()),
        chat_template=template,
        pair=convention.form(named) if convention is not None else pair_of(library),
    )


def _ranks(files: TokenizerFiles, path: Path) -> Tokenizer:
    ranks, encoding = read_ranks(path)
    names = files.names(encoding.names)
    convention = Convention(names=names, before=("bos",) if "bos" in names else ())
    return _over_library(files, library_of(ranks, encoding), names, convention)


def _pieces(files: TokenizerFiles, name: str) -> Tokenizer:
    if files.class_name in NUMBERINGS:
        return renumbered(files, name, _writer(files.folder, name))
    path = files.folder / name
    if is_ranks(path):
        return _ranks(files, path)
    default = "T5Tokenizer" if name == "spiece.model" else "LlamaTokenizer"
    convention = files.convention(PIECES, default, name)
    model = path.read_bytes()
    names = files.names(convention.names)
    template = files.chat_template(names)
    listed = files.added()
    control = [
        *names.values(),
        *files.special_names(),
        *(token.content for token in listed.values() if token.special),
    ]
    processor_of(model)  # nothing else reads bytes that are no model
    if template is not None:
        control += [name for name in pieces_of_type(model, PieceType.USER_DEFINED) if template.controls(name)]
    segmenter = PieceSegmenter(
        model,
        added={token.content: id for id, token in listed.items()},
        sentinels=files.extra_ids(convention.sentinels) if convention.sentinels else 0,
        control=control,
        prefix_each=convention.prefix_each or bool(files.switch("legacy")),
    )
    named = {role: id for role, name in names.items() if (id := segmenter.id(name)) is not None}
    prefix, suffix = files.around(convention, named)
    plain = {id for id, token in listed.items() if not token.special}
    return Tokenizer(
        segmenter=segmenter,
        write=_writer(files.folder, name),
        prefix=prefix,
        suffix=suffix,
        named=named,
        special_ids=frozenset(segmenter.control.values()) - plain | frozenset(named.values()),
        chat_template=template,
    )


def _marian(files: TokenizerFiles) -> Tokenizer:
    folder = files.folder
    convention = files.convention(MARIAN, "MarianTokenizer", "source.spm with target.spm")
    names = files.names(convention.names)
    vocab = _vocab(folder / "vocab.json")
    special = [*names.values(), *files.special_names()]

    def side(name: str, vocab: Mapping[str, int], target: Tokenizer | None = None) -> Tokenizer:
        model = (folder / name).read_bytes()
        named = {role: vocab[token] for role, token in names.items() if token in vocab}
        prefix, suffix = files.around(convention, named)
        return Tokenizer(
            segmenter=MarianSegmenter(model, vocab, unknown=files.unknown(names), special=special),
            write=_writer(folder),
            prefix=prefix,
            suffix=suffix,
            named=named,
            special_ids=frozenset(vocab[name] for name in special if name in vocab),
            target=target,
        )

    own = folder / "target_vocab.json"
    return side("source.spm", vocab, side("target.spm", _vocab(own) if own.is_file() else vocab))


def _named_pieces(files: TokenizerFiles) -> Tokenizer:
    name = "sentencepiece.bpe.model"
    return named_pieces(files, name, _vocab(files.folder / "vocab.json"), _writer(files.folder, name))


def _vocab(path: Path) -> dict[str, int]:
    vocab = read_json(path)
    if not vocab or not all(map(is_id, vocab.values())):
        raise TokenizerError(f"{path}: it must be an object of tokens and their ids, from 0 to below {MOST_IDS:,}.")
    if len(set(vocab.values())) < len(vocab):
        first: dict[int, str] = {}
        for token, id in vocab.items():
            if first.setdefault(id, token) != token:
                raise TokenizerError(f"{path}: {first[id]!r} and {token!r} both have the id {id}; each needs its own.")
    return vocab


def _writer(folder: Path, *more: str) -> Callable[[Path], None]:
    """Writes the files as they are now, whatever becomes of ``folder`` later."""
    paths = [folder / name for name in dict.fromkeys((*FILES, *more)) if (folder / name).is_file()]
    paths += folder.glob("*.tiktoken")
    paths += (folder / "additional_chat_templates").glob("*.jinja")
    files = {path.relative_to(folder): path.read_bytes() for path in paths}

    def write(target: Path) -> None:
        for name, data in files.items():
            (target / name).parent.mkdir(exist_ok=True)
            (target / name).write_bytes(data)

    return write


_KINDS: tuple[tuple[tuple[str, ...], Callable[[TokenizerFiles], Tokenizer]], ...] = (
    (("tokenizer.json",), _tokenizer_json),
    (("source.spm", "target.spm", "vocab.json"), _marian),
    (("sentencepiece.bpe.model", "vocab.json"), _named_pieces),
    (("vocab.json", "merges.txt"), _byte_level),
    (("vocab.txt",), _word_piece),
    (("spiece.model",), lambda files: _pieces(files, "spiece.model")),
    (("tokenizer.model",), lambda files: _pieces(files, "tokenizer.model")),
)
