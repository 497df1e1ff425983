"""Quality: BLEU and chrF of translations by sacrebleu, never a number without its signature.

What would make the number mean something else is refused: lines that do not match, pieces of words, tokenised text
against plain text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from plait.generation import Translation, translate
from plait.words import nearest

if TYPE_CHECKING:
    from plait.checkpoint import Checkpoint

METRICS = ("bleu", "chrf")
TOKENIZERS = ("13a", "zh", "none", "intl", "char", "ja-mecab", "ko-mecab", "flores101", "flores200")
# Languages whose words 13a does not find, by the start of their code: written without spaces
_OTHERS = {"zh": "zh", "zho": "zh", "cmn": "zh", "yue": "zh", "ja": "char", "jpn": "char", "th": "char", "tha": "char"}
_PIECES = re.compile(r"\u2581|@@( |$)|(?:^| )##\w|\u0120\w")
_MARK = re.compile(r"(?<=\S)( ?)[.,](?=\s|$)")


class QualityError(ValueError):
    """Translations that cannot be measured so; the message says which and what would be right."""


@dataclass(frozen=True, kw_only=True)
class Quality:
    """A figure of a whole test set. ``detail`` is sacrebleu's own line: of BLEU precisions, brevity and lengths;
    ``signature`` says how it was counted."""

    metric: str
    value: float
    detail: str
    signature: str

    def __str__(self) -> str:
        return f"{self.detail} [{self.signature}]"


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: str | None = None,
    language: str | None = None,
    lowercase: bool = False,
) -> Quality:
    """Corpus BLEU (Papineni et al. 2002) as sacrebleu counts it (Post 2018), from 0 to 100.

    ``tokenize``: sacrebleu's; ``None``: ``tokenizer_for`` the references and the target ``language``. Raises
    ``QualityError`` where lines do not match, are pieces, or where one side alone is tokenised.
    """
    _check(hypotheses, references)
    how = tokenizer_for(references, language) if tokenize is None else tokenize
    if how not in TOKENIZERS:
        near = nearest(how, TOKENIZERS)
        raise QualityError(
            f"tokenize: sacrebleu has no {how!r}; " + (f"did you mean {near!r}?" if near else "see its.")
        )
    if how in ("13a", "intl", "none"):
        _check_alike(hypotheses, references)
    metric = _sacrebleu().metrics.BLEU(tokenize=how, lowercase=lowercase, force=True)
    return _quality("bleu", metric, hypotheses, references)


def plain_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Quality:
    """BLEU of text that is tokenised already, as multi-bleu.perl counts it: words as they stand, nothing smoothed; by
    custom of lower-cased text."""
    _check(hypotheses, references)
    _check_alike(hypotheses, references)
    metric = _sacrebleu().metrics.BLEU(tokenize="none", smooth_method="none", force=True)
    return _quality("bleu", metric, hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> Quality:
    """chrF2 (Popović 2015), characters only, from 0 to 100; needs no tokenisation."""
    _check(hypotheses, references)
    metric = _sacrebleu().metrics.CHRF(lowercase=lowercase)
    return _quality("chrf", metric, hypotheses, references)


def tokenizer_for(texts: Sequence[str], language: str | None = None) -> str:
    """sacrebleu's tokenizer for texts in a language: ``zh`` for Chinese, ``char`` for others without spaces, ``none``
    for what is tokenised already, else ``13a``. Without a code the script decides."""
    code = re.split(r"[_-]", language.strip("_").lower())[0] if language else _script(texts)
    if code in _OTHERS:
        return _OTHERS[code]
    return "none" if is_tokenised(texts) else "13a"


def is_tokenised(texts: Sequence[str]) -> bool | None:
    """Whether full stops and commas stand apart from their words; ``None`` where there are none to see it by."""
    spaces = [mark.group(1) for text in texts for mark in _MARK.finditer(text)]
    return 2 * sum(map(bool, spaces)) > len(spaces) if spaces else None


def translation_quality(
    checkpoint: Checkpoint,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    metrics: Sequence[str] = METRICS,
    tokenize: str | None = None,
    language: str | None = None,
    **options: Any,
) -> tuple[dict[str, Quality], list[Translation]]:
    """Translate the sources, and measure what comes out against the references: by metric, and the translations.

    ``options``: of ``plait.translate``. Raises ``QualityError``, before any work where it can be known.
    """
    if unknown := [name for name in metrics if name not in METRICS]:
        raise QualityError(f"metrics: {unknown[0]!r} is not one of {', '.join(METRICS)}.")
    _check(sources, references, "sources")
    _sacrebleu()
    found = translate(checkpoint, list(sources), **options)
    assert isinstance(found, list)
    texts = [one.text for one in found]
    measured: dict[str, Quality] = {}
    for name in metrics:
        measured[name] = (
            bleu(texts, references, tokenize=tokenize, language=language) if name == "bleu" else chrf(texts, references)
        )
    return measured, found


def check_installed() -> None:
    """``QualityError`` where sacrebleu, which counts, is not there."""
    _sacrebleu()


def _quality(name: str, metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Quality:
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return Quality(metric=name, value=score.score, detail=str(score), signature=str(metric.get_signature()))


def _check(hypotheses: Sequence[str], references: Sequence[str], name: str = "hypotheses") -> None:
    if len(hypotheses) != len(references):
        raise QualityError(f"{name}: {len(hypotheses)} lines for {len(references)} references; give one for each.")
    if not references:
        raise QualityError("references: there are none to measure against.")
    for side, texts in ((name, hypotheses), ("references", references)):
        pieces = [number for number, text in enumerate(texts, start=1) if _PIECES.search(text)]
        if 4 * len(pieces) > len(texts):
            raise QualityError(
                f"{side}: line {pieces[0]} is made of pieces of words ({texts[pieces[0] - 1][:30]!r}); measure text."
            )


def _check_alike(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    ours, theirs = is_tokenised(hypotheses), is_tokenised(references)
    if None not in (ours, theirs) and ours != theirs:
        which, other = ("hypotheses", "references") if ours else ("references", "hypotheses")
        raise QualityError(
            f"{which}: they are tokenised, with full stops apart, and the {other} are not; join them first."
        )


def _script(texts: Sequence[str]) -> str | None:
    """``ja`` where there are kana, ``zh`` where most letters are Chinese characters."""
    letters = [character for text in texts for character in text if character.isalpha()]
    if any("\u3041" <= character <= "\u30ff" for character in letters):
        return "ja"
    return "zh" if 2 * sum("\u4e00" <= character <= "\u9fff" for character in letters) > len(letters) else None


def _sacrebleu() -> ModuleType:
    try:
        import sacrebleu
    except ImportError:
        raise QualityError("bleu, chrf: they need sacrebleu; install plait[evaluate].") from None
    return sacrebleu
