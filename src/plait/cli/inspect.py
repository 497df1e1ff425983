"""``plait inspect``: tables of what happens inside a model while it reads one text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from plait.cli.models import Loading, check_text
from plait.cli.printing import Format, as_json, table, write_page

if TYPE_CHECKING:
    from plait.checkpoint import Checkpoint
    from plait.inspection import Trace

Kind = Literal[
    "attention", "induction", "lens", "attribution", "residual", "ablation", "gradients", "patching", "tracing"
]
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is looked at.

    Parameters
    ----------
    target
        Of an encoder-decoder, what its decoder reads; what is not given is what it would write.
    token
        The output that is asked about, as text or number; what is not given is the likeliest at the position.
    against
        Another, whose output is subtracted (attribution), or beside which the first is measured (patching).
    position
        Which token of the text, from 0; negative ones count from the end.
    by
        attribution: whole sublayers, attention heads, or neurons too; ablation and patching: branches or heads.
    corrupted
        patching: a text of as many tokens, into which values of the first are put.
    subject
        tracing: the words of the text that are blurred.
    top
        Lines of attribution and ablation, those that matter most; 0 is all.
    """

    target: str | None = None
    token: str | None = None
    against: str | None = None
    position: int = -1
    by: Literal["branches", "heads", "neurons"] = "branches"
    corrupted: str | None = None
    subject: str | None = None
    top: int = 20


def inspect(
    kind: Kind,
    model: str,
    text: str = "",
    /,
    *,
    asked: Annotated[Asked, Parameter(name="*")] = Asked(),
    out: Path | None = None,
    format: Format = "text",
    loading: Annotated[Loading, Parameter(name="*")] = Loading(),
) -> None:
    """Print what happens inside a model.

    Parameters
    ----------
    kind
        attention: what each head looks at; induction: which heads go on with what was said before; lens: what each
        layer would say; attribution: who wrote an output; residual: how large the stream is; ablation: what is lost
        without a part; gradients: which tokens an output depends on; patching: which values carry what differs between
        two texts; tracing: where a fact about a subject is recalled.
    model
        A folder, a .gguf file, a hub name, or package:NAME.
    text
        What it reads; of an encoder-decoder the source.
    out
        An HTML file to write, with the table and, of some kinds, figures; it opens without a network.
    """
    check_text(model)
    checkpoint = loading.open(model)
    rows = list(KINDS[kind](checkpoint, text, asked))
    if out is not None:
        from plait.studio.inspected import figures_of, inspected

        figures = figures_of(kind, checkpoint, text, rows, asked.target)
        write_page(out, inspected(kind, model, text, rows, figures))
    if format == "json":
        as_json(rows)
    else:
        table(rows)


def attention(checkpoint: Checkpoint, text: str, asked: Asked) -> Iterator[Row]:
    """A line for each head."""
    from plait.inspection import heads, trace

    yield from map(asdict, heads(trace(checkpoint, text, "*.pattern", target=asked.target)))


def induction(checkpoint: Checkpoint, text: str, asked: Asked) -> Iterator[Row]:
    """A line for each head, over random tokens said twice."""
    from plait.inspection import induction

    yield from map(asdict, induction(checkpoint))


def residual(checkpoint: Checkpoint, text: str, asked: Asked) -> Iterator[Row]:
    """The norm of the stream, and of what is added to it, at each place."""
    from plait.inspection import trace

    seen = trace(checkpoint, text, "*embedding.output", "*_branch", "*.layers.*.output", target=asked.target)
    for name, value in seen.items():
        norms = value.float().norm(dim=-1)
        yield {"site": name, "mean": float(norms.mean()), "least": float(norms.min()), "most": float(norms.max())}


def lens(checkpoint: Checkpoint, text: str, asked: Asked) -> Iterator[Row]:
    """What each layer would say at the position."""
    from plait.inspection import lens, trace
    from plait.inspection.reading import spell

    seen = trace(checkpoint, text, "*.output", "*.after_*", target=asked.target)
    position = place(seen, asked.position)
    answer = output(checkpoint, seen, asked.token, position)
    for name, logits in lens(seen, between=True):
        shares = logits[position].float().softmax(-1)
        best = int(shares.argmax())
        yield {
            "after": name,
            "says": spell(best, writer(checkpoint)),
            "probability": float(shares[best]),
            f"of {spell(answer, writer(checkpoint))!r}": float(shares[answer]),
            "rank": int((shares > shares[answer]).sum()) + 1,
            "entropy": float(-(shares * shares.clamp(min=1e-30).log()).sum()),
        }


def attribution(checkpoint: Checkpoint, text: str, asked: Asked) -> Iterator[Row]:
    """The parts that wrote an output."""
    from plait.inspection import attribute, trace

    seen = trace(checkpoint, text, target=asked.target)
    position = place(seen, asked.position)
    token = output(checkpoint, seen, asked.token, position)
    against = None if asked.against is None else output(checkpoint, seen, asked.against, position)
    found = attribute(seen, token, against=against, position=position, by=asked.by)
    shown = found.largest(asked.top or len(found.names))
    yield from ({"part": name, "adds": value} for name, value in shown)
    yield {
        "part": f"the other {len(found.names) - len(shown):,}",
        "adds": found.total - sum(value for _, value in shown),
    }
    yield {"part": "output", "adds": found.output}


def ablation(checkpoint: Checkpoint, text: str, asked: Asked) -> Iterator[Row]:
    """What the answer's log-probability loses without a part."""
    from plait.inspection import ablate, log_probability, trace

    seen = trace(checkpoint, text, "*.output", target=asked.target)
    position = place(seen, asked.position)
    token = output(checkpoint, seen, asked.token, position)
    sites = "*.mix" if asked.by != "branches" else "*_branch"
    measure = log_probability(token, position=position)
    found = list(ablate(checkpoint, seen.reading, sites, measure, heads=asked.by != "branches"))
    found.sort(key=lambda one: abs(one.change), reverse=True)
    yield from map(asdict, found[: asked.top or len(found)])


def gradients(checkpoint: Checkpoint, text: str, asked: Asked) -> Iterator[Row]:
    """What the answer's log-probability depends on, a token a line."""
    from plait.inspection import gradients, log_probability, trace

    seen = trace(checkpoint, text, "*.output", target=asked.target)
    position = place(seen, asked.position)
    token = output(checkpoint, seen, asked.token, position)
    for name, slope in gradients(checkpoint, seen.reading, log_probability(token, position=position)).items():
        tower = "encoder" if name.startswith("source") else seen.tower
        times = (slope * seen[name]).sum(-1)
        for word, size, product in zip(seen.reading.seen_by(tower), slope.norm(dim=-1), times, strict=True):
            yield {"site": name, "token": word, "gradient": float(size), "gradient times value": float(product)}


def patching(checkpoint: Checkpoint, text: str, asked: Asked) -> Iterator[Row]:
    """How much of the way back each value of the first text brings the second."""
    from plait.inspection import log_probability, logit_difference, patch, read, trace

    if asked.corrupted is None:
        raise ValueError("--corrupted: patching needs a second text, into which values of the first are put.")
    clean = read(checkpoint, text, target=asked.target)
    other = read(checkpoint, asked.corrupted, target=asked.target)
    seen = trace(checkpoint, clean, "*.output")
    position = place(seen, asked.position)
    token = output(checkpoint, seen, asked.token, position)
    measure = log_probability(token, position=position)
    if asked.against is not None:
        against = output(checkpoint, seen, asked.against, position)
        measure = logit_difference(token, against, position=position)
    by = "place" if asked.by == "branches" else "head"
    sites = f"{seen.tower}.layers.*.output" if by == "place" else f"{seen.tower}.layers.*.mix"
    for one in patch(checkpoint, clean, other, sites, measure, by=by):
        where = {"token": clean.texts[one.place]} if by == "place" else {"head": one.place}
        yield {"site": one.site, "place": one.place, **where, "value": one.value, "share": one.share}


def tracing(checkpoint: Checkpoint, text: str, asked: Asked) -> Iterator[Row]:
    """The answer's probability with a layer's value at a token put back."""
    from plait.inspection import read
    from plait.inspection.causal import causal_trace
    from plait.inspection.reading import token_at

    if asked.subject is None or asked.subject not in text:
        raise ValueError("--subject: tracing needs words of the text, as they stand there.")
    reading = read(checkpoint, text)
    ids, start = reading.tokens[0].tolist(), text.rindex(asked.subject)
    first, last = (token_at(writer(checkpoint), ids, text, end) for end in (start + 1, start + len(asked.subject)))
    token = None if asked.token is None else number(checkpoint, asked.token)
    found = causal_trace(checkpoint, reading, range(first, last + 1), token=token)
    for layer, row in enumerate(found.probabilities.tolist()):
        yield {
            "layer": layer,
            **{f"{i} {word}": value for i, (word, value) in enumerate(zip(found.texts, row, strict=True))},
        }


KINDS: dict[str, Callable[[Checkpoint, str, Asked], Iterator[Row]]] = {
    "attention": attention,
    "induction": induction,
    "lens": lens,
    "attribution": attribution,
    "residual": residual,
    "ablation": ablation,
    "gradients": gradients,
    "patching": patching,
    "tracing": tracing,
}


def place(seen: Trace, position: int) -> int:
    """A position from the start."""
    n = len(seen.reading)
    if not -n <= position < n:
        raise ValueError(f"--position: {position}, and the text has {n} tokens.")
    return position % n


def writer(checkpoint: Checkpoint) -> Any:
    """The tokenizer of what the model writes."""
    tokenizer = checkpoint.tokenizer
    return tokenizer if tokenizer is None or tokenizer.target is None else tokenizer.target


def output(checkpoint: Checkpoint, seen: Trace, said: str | None, position: int) -> int:
    """The number of an output: the likeliest, or that of a text of one token."""
    if said is None:
        return int((seen.output if seen.output.ndim == 1 else seen.output[position]).argmax())
    return number(checkpoint, said)


def number(checkpoint: Checkpoint, said: str, option: str = "--token") -> int:
    """A token by its text, or its number."""
    if said.isdecimal():
        return int(said)
    ids = writer(checkpoint).encode(said, specials=False)
    if len(ids) != 1:
        raise ValueError(f"{option}: {said!r} is {len(ids)} tokens; give one, with the space before it if it has one.")
    return ids[0]
