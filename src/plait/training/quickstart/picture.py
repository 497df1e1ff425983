"""Picture: which English word each Chinese character looked at, as shades in a terminal and as a page of its own."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from plait.checkpoint import Checkpoint
from plait.generation import generate
from plait.model import watching

SHADES = " ·░▒▓█"
CELL = 34  # pixels


@dataclass(frozen=True)
class Pattern:
    """Cross-attention of one translation: a row for each token written, a column for each token read."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]


def pattern_of(checkpoint: Checkpoint, english: str) -> Pattern:
    """Translate a sentence, and watch ``decoder.layers.*.cross.pattern`` while the model reads its translation again.

    Heads and layers are averaged; a row is the place where its token was chosen.
    """
    tokenizer, start = checkpoint.tokenizer, checkpoint.rules.start
    assert tokenizer is not None and start is not None
    said = generate(checkpoint, english)
    assert not isinstance(said, list)
    written = [token for token in said.tokens if token not in checkpoint.rules.end]
    source = tokenizer.encode(english)
    model = checkpoint.model
    with torch.no_grad(), watching(model, "decoder.layers.*.cross.pattern") as seen:
        model(torch.tensor([[start, *written[:-1]]]), source=torch.tensor([source]))
    weights = torch.stack([value[0].mean(0) for value in seen.values()]).mean(0)  # target, source
    words = tuple(tokenizer.decode([token]).strip() for token in source)
    return Pattern(words, tuple(tokenizer.decode([token]) for token in written), tuple(map(tuple, weights.tolist())))


def in_terminal(pattern: Pattern) -> str:
    """Columns are English words, rows Chinese characters; the darker, the more was looked there."""
    widths = [max(len(word), 3) for word in pattern.source]
    lines = ["    " + " ".join(word.ljust(width) for word, width in zip(pattern.source, widths, strict=True)).rstrip()]
    for character, row in zip(pattern.target, pattern.weights, strict=True):
        cells = [_shade(weight) * width for weight, width in zip(row, widths, strict=True)]
        lines.append(f"{character}{' ' * (4 - _columns(character))}{' '.join(cells)}".rstrip())
    return "\n".join(lines)


def _shade(weight: float) -> str:
    return SHADES[min(int(weight * len(SHADES)), len(SHADES) - 1)]


def _columns(text: str) -> int:
    """How wide a terminal writes it: two for a Chinese character."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def page(patterns: Sequence[Pattern]) -> str:
    """The same as HTML with SVG inside, which needs nothing else."""
    figures = "\n".join(map(_figure, patterns))
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Cross-attention</title>
<style>
  body {{ font: 16px system-ui, sans-serif; margin: 2em; background: #fff; color: #222; }}
  text {{ font: 15px system-ui, sans-serif; fill: #222; }}
  figure {{ margin: 0 0 3em; }}
</style>
<h1>Cross-attention</h1>
<p>Each row is a Chinese character as it was written, each column an English word: the darker, the more the decoder
looked at it, over all layers and heads.</p>
{figures}
</html>
"""


def _figure(pattern: Pattern) -> str:
    left, top = 60, 110
    width, height = left + CELL * len(pattern.source) + 80, top + CELL * len(pattern.target) + 10
    parts = []
    for j, word in enumerate(pattern.source):
        x = left + CELL * j + CELL // 2
        parts.append(f'<text x="{x}" y="{top - 8}" transform="rotate(-50 {x} {top - 8})">{html.escape(word)}</text>')
    for i, (character, row) in enumerate(zip(pattern.target, pattern.weights, strict=True)):
        y = top + CELL * i
        parts.append(f'<text x="{left - 10}" y="{y + 23}" text-anchor="end">{html.escape(character)}</text>')
        for j, weight in enumerate(row):
            parts.append(
                f'<rect x="{left + CELL * j}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" fill="#1f5fa8" '
                f'fill-opacity="{weight:.3f}" stroke="#ccd"><title>{html.escape(character)} '
                f"{html.escape(pattern.source[j])} {weight:.2f}</title></rect>"
            )
    drawn = "\n".join(parts)
    caption = html.escape(" ".join(pattern.source))
    return (
        f'<figure><figcaption>{caption}</figcaption><svg width="{width}" height="{height}" role="img">\n{drawn}\n'
        "</svg></figure>"
    )
