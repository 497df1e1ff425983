"""Training: a vocabulary learnt from text, and the tokenizer that cuts by it.

The algorithms are the ``tokenizers`` library's. Five kinds lose nothing: a space stays a space in its token, and a
character that the vocabulary lacks is spelled by its bytes. ``alphabet`` has no bytes, so that it is as small as the
text's own set of characters, and any other is one unknown token. ``wordpiece`` is BERT's, which forgets how words were
spaced, and makes one unknown token of a word it cannot spell.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Library

from plait.text.conventions import ROLES, WORD_PIECE
from plait.text.error import TokenizerError
from plait.text.ids import MOST_IDS
from plait.text.library import LibrarySegmenter
from plait.text.spelling import byte_alphabet, byte_of, is_unicode
from plait.text.tokenizer import Tokenizer

PLAIN = {"pad": "<pad>", "bos": "<s>", "eos": "</s>"}
PIECES = {**PLAIN, "unk": "<unk>"}
BERT = WORD_PIECE["BertTokenizer"].names

_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]  # of characters that are no tokens
_ASCII = [chr(code) for code in range(32, 127)]
# GPT-2's rule (Radford et al. 2019): a word with the space before it, numbers and other signs apart
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a training is asked for: ids in all, how often a token must occur, special tokens in the order of ids."""

    vocab_size: int
    min_frequency: int
    specials: Sequence[str]
    unknown: str
    lowercase: bool
    progress: bool

    @property
    def learnt(self) -> int:
        """Ids left beside the special ones and the bytes."""
        return self.vocab_size - len(self.specials) - 256


@dataclass(frozen=True)
class Kind:
    """``learn`` makes the library's tokenizer; ``names`` are its special tokens; ``fixed`` the ids it has anyway."""

    learn: Callable[[Iterable[str], Plan], Library]
    names: Mapping[str, str]
    fixed: int
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def train_tokenizer(
    texts: Iterable[str],
    *,
    kind: str = "byte-bpe",
    vocab_size: int = 8000,
    min_frequency: int = 2,
    specials: Mapping[str, str] | None = None,
    before: Sequence[str] | None = None,
    after: Sequence[str] | None = None,
    lowercase: bool = False,
    progress: bool = False,
) -> Tokenizer:
    """Learn a vocabulary from ``texts``, which are read once, one by one: lines of files, say.

    Args:
        texts: strings, with their line ends where those should be learnt.
        kind: ``"byte-bpe"`` (Radford et al. 2019), ``"bpe"`` (Sennrich et al. 2016), ``"unigram"`` (Kudo 2018),
            ``"wordpiece"`` (Devlin et al. 2019), ``"bytes"``, ``"characters"``, or ``"alphabet"``: characters without
            bytes.
        vocab_size: how many ids there may be, special ones included; ``bytes`` has 256 and its specials.
        min_frequency: how often a pair (or a character) must occur to be learnt.
        specials: role (``bos``, ``eos``, ``pad``, ``unk``, ``cls``, ``sep``, ``mask``) to token, instead of or besides
            the kind's own.
        before, after: the roles of the ids around a text; by default BERT's for ``wordpiece``, none for the others.
        lowercase: wordpiece only.
        progress: the library shows bars on a terminal's stderr.

    Raises TokenizerError for an unknown kind or role, for fewer ids than it needs, and where the texts hold nothing.
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise TokenizerError(f"kind: {kind!r} is not one of {', '.join(KINDS)}.")
    if lowercase and kind != "wordpiece":
        raise TokenizerError(f"lowercase: a {kind} vocabulary keeps every character; only wordpiece may lose case.")
    row = KINDS[kind]
    _check_numbers(vocab_size, min_frequency)
    names = {**row.names, **(specials or {})}
    for role in (*names, *(before or ()), *(after or ())):
        if role not in ROLES:
            raise TokenizerError(f"specials: {role!r} is no role; roles are {', '.join(ROLES)}.")
    _check_specials(names, kind)
    unique = tuple(dict.fromkeys(names.values()))
    if vocab_size < row.fixed + len(unique):
        raise TokenizerError(
            f"vocab_size: {vocab_size} ids do not hold the {row.fixed + len(unique)} that a {kind} vocabulary has "
            "before it learns anything."
        )
    plan = Plan(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        specials=unique,
        unknown=names.get("unk", "<unk>"),
        lowercase=lowercase,
        progress=progress,
    )
    library = row.learn(_checked(texts), plan)
    library.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in unique])
    around = (row.before if before is None else before), (row.after if after is None else after)
    for role in (*around[0], *around[1]):
        if role not in names:
            raise TokenizerError(f"{role}: it should go around texts, but no token has that role.")
    return _tokenizer(library, names, *around)


def lines(paths: Iterable[Path]) -> Iterator[str]:
    """The lines of files, with their ends, read as they are asked for; a line without end comes in pieces.

    Raises TokenizerError where a file is not UTF-8, with the place.
    """
    for path in paths:
        with path.open(encoding="utf-8", newline="") as file:
            number = 0
            try:
                while line := file.readline(1 << 20):
                    number += 1
                    yield line
            except UnicodeDecodeError as error:
                raise TokenizerError(
                    f"{path}: it is not UTF-8 after line {number} (byte 0x{error.object[error.start]:02X}); "
                    "convert it first."
                ) from None


def _check_numbers(vocab_size: Any, min_frequency: Any) -> None:
    for name, value, least in (("vocab_size", vocab_size, 1), ("min_frequency", min_frequency, 1)):
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST_IDS:
            raise TokenizerError(
                f"{name}: it is {value!r:.40}, and must be a whole number from {least} to {MOST_IDS:,}."
            )


def _check_specials(names: Mapping[str, Any], kind: str) -> None:
    """A special token is found in every text before it is cut, so it must not be what texts are cut into."""
    for role, token in names.items():
        if not isinstance(token, str) or not token or not is_unicode(token):
            raise TokenizerError(f"specials: {role} is {token!r:.40}, and must be a string of characters.")
        if len(token) == 1 or byte_of(token) is not None or (kind == "wordpiece" and token.startswith("##")):
            raise TokenizerError(
                f"specials: {role} is {token!r}, which a vocabulary has for text itself; choose a name such as "
                f"<{role}>."
            )


def _checked(texts: Iterable[str]) -> Iterator[str]:
    empty = True
    if isinstance(texts, (str, bytes)):
        raise TokenizerError("texts: it is one string, and must be several: a list of them, or a generator.")
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise TokenizerError(f"texts: number {number} is of the type {type(text).__name__}, and must be a string.")
        if not is_unicode(text):
            raise TokenizerError(f"texts: number {number} has half of a surrogate pair, which is no character.")
        empty = empty and not text.strip()
        yield text
    if empty:
        raise TokenizerError("texts: there is nothing in them to learn from.")


def _tokenizer(library: Library, names: Mapping[str, str], before: Sequence[str], after: Sequence[str]) -> Tokenizer:
    ids = library.get_vocab(with_added_tokens=True)
    named = {role: ids[token] for role, token in names.items()}
    prefix, suffix = (tuple(named[role] for role in roles) for roles in (before, after))
    if prefix or suffix:
        single = [*(names[role] for role in before), "$A", *(names[role] for role in after)]
        special = [(names[role], named[role]) for role in dict.fromkeys((*before, *after))]
        library.post_processor = processors.TemplateProcessing(single=single, special_tokens=special)
    config = {f"{role}_token": token for role, token in names.items()}
    config |= {"clean_up_tokenization_spaces": False, "tokenizer_class": "PreTrainedTokenizerFast"}

    def write(folder: Path) -> None:
        library.save(str(folder / "tokenizer.json"))
        text = json.dumps(config, indent=2, ensure_ascii=False)
        (folder / "tokenizer_config.json").write_text(text + "\n", "utf-8")

    segmenter = LibrarySegmenter(library)
    return Tokenizer(
        segmenter=segmenter,
        write=write,
        prefix=prefix,
        suffix=suffix,
        named=named,
        special_ids=segmenter.special_ids,
    )


# The kinds

_STEP = 1e-4  # between the scores of characters that the library's unigram trainer keeps by force


def _byte_bpe(texts: Iterable[str], plan: Plan) -> Library:
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=plan.vocab_size,
        min_frequency=plan.min_frequency,
        special_tokens=list(plan.specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=plan.progress,
    )
    library.train_from_iterator(texts, trainer)
    return library


def _by_words(model: models.Model) -> Library:
    """Cut at words, spaces kept; what is spelled by bytes is put together again."""
    library = Library(model)
    library.pre_tokenizer = pre_tokenizers.Split(Regex(_WORDS), "isolated")
    library.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return library


def _bpe(texts: Iterable[str], plan: Plan) -> Library:
    """Of characters, at most half of them the alphabet; the rarer ones are spelled by bytes."""
    trainer = trainers.BpeTrainer(
        vocab_size=plan.learnt,
        min_frequency=plan.min_frequency,
        initial_alphabet=_ASCII,
        limit_alphabet=max(plan.learnt // 2, len(_ASCII)),
        show_progress=plan.progress,
    )
    library = _by_words(models.BPE())
    library.train_from_iterator(texts, trainer)
    state = json.loads(library.to_str())["model"]
    learnt = sorted(state["vocab"], key=state["vocab"].__getitem__)
    merges = [tuple(pair) for pair in state["merges"]]
    return _by_words(_fallback([*plan.specials, *_BYTES, *learnt], merges, plan))


def _fallback(tokens: Sequence[str], merges: list[tuple[str, str]], plan: Plan) -> models.BPE:
    vocab = {token: id for id, token in enumerate(dict.fromkeys(tokens))}
    unknown = plan.unknown if plan.unknown in vocab else None
    return models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token=unknown)


def _unigram(texts: Iterable[str], plan: Plan) -> Library:
    trainer = trainers.UnigramTrainer(
        vocab_size=plan.learnt + 1,  # the unknown token is among the special ones already
        initial_alphabet=_ASCII,
        special_tokens=[plan.unknown],
        unk_token=plan.unknown,
        show_progress=plan.progress,
    )
    library = _by_words(models.Unigram())
    library.train_from_iterator(texts, trainer)
    learnt = [(token, score) for token, score in json.loads(library.to_str())["model"]["vocab"] if score]
    learnt = _in_order(learnt)
    # A byte's token never wins over characters, which ASCII always has: text that spells <0x41> stays what it is.
    fixed = dict.fromkeys((*plan.specials, plan.unknown), 0.0) | dict.fromkeys(_BYTES, -1e6)
    vocab = [*fixed.items(), *((token, score) for token, score in learnt if token not in fixed)]
    return _by_words(models.Unigram(vocab, unk_id=list(fixed).index(plan.unknown), byte_fallback=True))


def _in_order(pieces: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Best first. Behind the rest the library puts the characters that it keeps by force, each a little under the one
    before, in the order of a hash table that is another in each process: here in the order of characters."""
    rounded = ((piece, round(score, 9)) for piece, score in pieces)  # that order is in the last bits of sums too
    pieces = sorted(rounded, key=lambda piece: (-piece[1], piece[0]))
    start = len(pieces)
    while start and len(pieces[start - 1][0]) == 1 and pieces[start - 1][1] - pieces[-1][1] < _STEP * len(pieces):
        start -= 1
    forced = sorted(piece for piece, _ in pieces[start:])
    return [*pieces[:start], *((piece, score) for piece, (_, score) in zip(forced, pieces[start:], strict=True))]


def _word_piece(texts: Iterable[str], plan: Plan) -> Library:
    """The single characters, alone and with their ``##``, are given in order: the library's trainer finds them in the
    order of a hash table that is another in each process, and merges that count alike go by their ids."""
    words: Counter[str] = Counter()
    empty = _by_pieces(models.WordPiece(unk_token=plan.unknown), plan)
    assert empty.normalizer is not None and empty.pre_tokenizer is not None, "both were given"
    for text in texts:
        words.update(word for word, _ in empty.pre_tokenizer.pre_tokenize_str(empty.normalizer.normalize_str(text)))
    letters = sorted({letter for word in words for letter in word})
    inner = sorted({letter for word in words for letter in word[1:]})
    trainer = trainers.WordPieceTrainer(
        vocab_size=plan.vocab_size,
        min_frequency=plan.min_frequency,
        special_tokens=[*plan.specials, *letters, *(f"##{letter}" for letter in inner)],
        show_progress=plan.progress,
    )
    learner = Library(models.WordPiece(unk_token=plan.unknown))
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    learner.train_from_iterator((f"{word} " * count for word, count in words.items()), trainer)
    vocab = learner.get_vocab(with_added_tokens=True)
    return _by_pieces(models.WordPiece(vocab=vocab, unk_token=plan.unknown), plan)


def _by_pieces(model: models.Model, plan: Plan) -> Library:
    library = Library(model)
    library.normalizer = normalizers.BertNormalizer(lowercase=plan.lowercase)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return library


def _bytes(texts: Iterable[str], plan: Plan) -> Library:
    for _ in texts:  # nothing is learnt; that they are texts is checked
        pass
    alphabet = sorted(byte_alphabet(), key=byte_alphabet().__getitem__)
    vocab = {token: id for id, token in enumerate((*plan.specials, *alphabet))}
    library = Library(models.BPE(vocab=vocab, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.decoder = decoders.ByteLevel()
    return library


def _characters(texts: Iterable[str], plan: Plan) -> Library:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    common = [character for character, n in counts.most_common(plan.learnt) if n >= plan.min_frequency]
    library = Library(_fallback([*plan.specials, *_BYTES, *sorted(common)], [], plan))
    library.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return library


def _alphabet(texts: Iterable[str], plan: Plan) -> Library:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    common = counts.most_common(plan.vocab_size - len(plan.specials))
    tokens = [*plan.specials, *sorted(character for character, n in common if n >= plan.min_frequency)]
    vocab = {token: id for id, token in enumerate(tokens)}
    library = Library(models.BPE(vocab=vocab, merges=[], unk_token=plan.unknown))
    library.decoder = decoders.Fuse()
    return library


KINDS: dict[str, Kind] = {
    "byte-bpe": Kind(_byte_bpe, PLAIN, 256),
    "bpe": Kind(_bpe, PIECES, 256 + len(_ASCII)),
    "unigram": Kind(_unigram, PIECES, 256 + len(_ASCII)),
    "wordpiece": Kind(_word_piece, BERT, 0, ("cls",), ("sep",)),
    "bytes": Kind(_bytes, PLAIN, 256),
    "characters": Kind(_characters, PIECES, 256),
    "alphabet": Kind(_alphabet, PIECES, 1),
}
