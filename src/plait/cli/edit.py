"""``plait edit``: a fact, or a neuron, of a decoder changed in its weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from plait.cli.models import Loading
from plait.cli.printing import Format, as_json, notice, table

if TYPE_CHECKING:
    from plait.checkpoint import Checkpoint
    from plait.inspection.editing import Edit, Fact

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Change:
    """What is changed: one fact, a file of facts, or a neuron; or an earlier edit undone.

    Parameters
    ----------
    subject
        Whom the fact is about.
    prompt
        The fact's beginning, with {} in place of the subject.
    target
        What the model is to say behind it.
    facts
        A JSON list of facts: subject, prompt and target, at will true, rephrased and elsewhere; or CounterFact's form.
    neuron
        LAYER.NUMBER, whose value is moved towards --promote.
    promote
        A token, as text or number.
    strength
        How much the token's logit rises where the neuron fires by 1, as its value is read through the unembedding.
    undo
        Take the edit back that MODEL's folder keeps a record of, to the bit.
    """

    subject: str | None = None
    prompt: str | None = None
    target: str | None = None
    facts: Annotated[Path | None, Parameter(name="--from")] = None
    neuron: str | None = None
    promote: str | None = None
    strength: float = 10.0
    undo: bool = False


@dataclass(frozen=True, kw_only=True)
class How:
    """How facts are written.

    Parameters
    ----------
    method
        rome: one after the other into one layer; memit: all at once over several; finetune: by gradient descent with a
        bound, what the others are measured by.
    layers
        Of the decoder, from 0: one, or for memit several, with commas; left out, the usual ones.
    corpus
        Text over which it is measured what a layer does besides: rome and memit need it, and it is read once, then
        kept; with --neuron the effect is shown on it.
    tokens
        Of the corpus, at most.
    seed
        Of the beginnings that the model writes before the prompts.
    evaluate
        Print efficacy, paraphrase, locality and fluency, before and after.
    """

    method: Literal["rome", "memit", "finetune"] = "rome"
    layers: str | None = None
    corpus: list[str] | None = None
    tokens: int = 100_000
    seed: int = 0
    evaluate: bool = False


def edit(
    model: str,
    /,
    *,
    out: Path,
    wanted: Annotated[Change, Parameter(name="*")] = Change(),
    how: Annotated[How, Parameter(name="*")] = How(),
    overwrite: bool = False,
    format: Format = "text",
    loading: Annotated[Loading, Parameter(name="*")] = Loading(),
) -> None:
    """Change what a decoder says, and write an ordinary checkpoint with a record that undoes it.

    Parameters
    ----------
    model
        A folder, a .gguf file, a hub name, or package:NAME.
    out
        The folder to write; its path is printed.
    overwrite
        Replace a checkpoint that is there already.
    format
        text for people, json for programs.
    """
    kind = _kind(wanted, how)
    from plait.checkpoint import save
    from plait.checkpoint.saving import check_target

    out = out.expanduser()
    check_target(out, overwrite)
    if kind == "undo":
        from plait.inspection.editing import undo

        save(undo(loading.open(model), Path(model).expanduser()), out, overwrite=overwrite)
        print(out)
        return
    facts = _facts(wanted) if kind == "facts" else []
    checkpoint = loading.open(model)
    if kind == "facts":
        made, rows = _with_facts(checkpoint, facts, how)
    else:
        made, rows = _with_neuron(checkpoint, wanted, how)
    made.save(out, overwrite=overwrite)
    if format == "json":
        as_json({"out": str(out), "rows": rows})
        return
    table(rows)
    print(out)


def _kind(wanted: Change, how: How) -> str:
    """What is asked for: facts, a neuron, or to undo. Raises ``ValueError`` for nothing, or more than one."""
    one = [name for name in ("subject", "prompt", "target") if getattr(wanted, name) is not None]
    asked = {
        "--subject, --prompt and --target": bool(one),
        "--from": wanted.facts is not None,
        "--neuron": wanted.neuron is not None or wanted.promote is not None,
        "--undo": wanted.undo,
    }
    given = [name for name, there in asked.items() if there]
    if len(given) != 1:
        raise ValueError(f"edit: say one of {', '.join(asked)}; here is {' and '.join(given) or 'none'}.")
    if one and len(one) < 3:
        raise ValueError(f"--{({'subject', 'prompt', 'target'} - set(one)).pop()}: a fact has all three; give it too.")
    if asked["--neuron"] and (wanted.neuron is None or wanted.promote is None):
        raise ValueError("--neuron, --promote: a neuron is moved towards a token; give both.")
    if (asked["--neuron"] or asked["--undo"]) and how.evaluate:
        raise ValueError("--evaluate: it is of facts.")
    return "undo" if wanted.undo else "neuron" if asked["--neuron"] else "facts"


def _facts(wanted: Change) -> list[Fact]:
    from plait.inspection.editing import Fact, read_facts

    if wanted.facts is not None:
        return read_facts(wanted.facts.expanduser())
    assert wanted.subject is not None and wanted.prompt is not None and wanted.target is not None
    return [Fact(subject=wanted.subject, prompt=wanted.prompt, target=wanted.target)]


def _with_facts(checkpoint: Checkpoint, facts: list[Fact], how: How) -> tuple[Edit, list[Row]]:
    from plait.inspection.editing import edit
    from plait.inspection.editing.judging import answer, greedy
    from plait.inspection.reading import spell

    corpus = list(how.corpus) if how.corpus else None
    layers = None if how.layers is None else _layers(how.layers)
    made = edit(checkpoint, facts, method=how.method, layers=layers, corpus=corpus, tokens=how.tokens, seed=how.seed)
    if how.evaluate:
        return made, list(_judged(checkpoint, made.checkpoint, facts))
    rows: list[Row] = []
    missed = 0
    for fact in facts:
        (old, _), (new, said) = (answer(one, fact.text, fact.target) for one in (checkpoint, made.checkpoint))
        missed += not said
        rows.append(
            {
                "prompt": fact.text,
                "target": fact.target,
                "before": old,
                "after": new,
                "now says": spell(greedy(made.checkpoint, fact.text), checkpoint.tokenizer),
            }
        )
    if missed:
        notice(f"edit: {missed:,} of {len(facts):,} targets are not what the model says; try other --layers.")
    return made, rows


def _judged(before: Checkpoint, after: Checkpoint, facts: list[Fact]) -> Iterator[Row]:
    from plait.data.progress import counted
    from plait.inspection.editing import Judgement, judge

    for name, one in (("before", before), ("after", after)):
        found: list[Judgement] = []
        with counted(f"judging {name}", len(facts)) as advance:
            for judgement in judge(one, before, facts):
                found.append(judgement)
                advance(1)
        mean = Judgement.mean(found)
        yield {"weights": name, **asdict(mean), "harmonic mean": mean.harmonic}


def _with_neuron(checkpoint: Checkpoint, wanted: Change, how: How) -> tuple[Edit, list[Row]]:
    from plait.cli.inspect import number
    from plait.inspection.editing import promote
    from plait.inspection.editing.effect import effect

    assert wanted.neuron is not None and wanted.promote is not None
    layer, _, neuron = wanted.neuron.partition(".")
    if not (layer.isdecimal() and neuron.isdecimal()):
        raise ValueError(f"--neuron: {wanted.neuron!r} is none; give LAYER.NUMBER, 3.120 for instance.")
    token = number(checkpoint, wanted.promote, "--promote")
    made = promote(checkpoint, int(layer), int(neuron), token, wanted.strength)
    if not how.corpus:
        notice("edit: with --corpus FILE its effect on a text is shown.")
        return made, []
    found = effect(checkpoint, made.checkpoint, int(layer), int(neuron), token, list(how.corpus))
    return made, [asdict(one) for one in found]


def _layers(said: str) -> list[int]:
    parts = [part.strip() for part in said.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ValueError(f"--layers: {said!r} are none; give numbers with commas, 3 or 3,4,5.")
    return [int(part) for part in parts]
