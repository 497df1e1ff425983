"""Facts: what is to be said of a subject, and where that subject ends among the tokens of a prompt.

prompt  "The mother tongue of {} is"   subject  "Danielle Darrieux"   target  "English"
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from plait.checkpoint import Checkpoint
from plait.inspection.errors import InspectionError
from plait.text import Tokenizer

SLOT = "{}"


@dataclass(frozen=True, kw_only=True)
class Fact:
    """``prompt`` has one ``{}``, where the subject stands; ``target`` is what follows it, with its own leading space or
    without. ``true`` is what it was, ``rephrased`` prompts that ask the same and ``elsewhere`` prompts, with their
    answers, that must stay as they are; they are for ``evaluate``.

    Raises ``InspectionError`` for a prompt without one place for the subject, and where one of the three is empty.
    """

    subject: str
    prompt: str
    target: str
    true: str | None = None
    rephrased: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("subject", "prompt", "target"):
            if not getattr(self, name).strip():
                raise InspectionError(f"{name}: it is empty; say one.")
        if self.prompt.count(SLOT) != 1:
            raise InspectionError(f"prompt: {self.prompt!r} must have one {SLOT}, in place of the subject.")

    @property
    def text(self) -> str:
        """The prompt with its subject."""
        return self.prompt.replace(SLOT, self.subject)

    @property
    def ends(self) -> int:
        """The characters of ``text`` up to the subject's end."""
        return self.prompt.index(SLOT) + len(self.subject)

    @property
    def answer(self) -> str:
        """The target as it follows the prompt."""
        return following(self.text, self.target)


def following(text: str, target: str) -> str:
    """A target behind a text: with a space between, unless there is one."""
    return target if text[-1:].isspace() or target[:1].isspace() else f" {target}"


def read_facts(path: Path) -> list[Fact]:
    """A JSON list of objects with ``subject``, ``prompt``, ``target`` and, at will, the others of ``Fact``; or in
    CounterFact's form, with ``target_new``, ``ground_truth``, ``rephrase_prompt`` and ``locality_prompt``, where the
    subject stands in the prompt itself.

    Raises ``InspectionError``, naming the object, for another form.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InspectionError(f"{path}: it is not JSON ({error}).") from None
    if not isinstance(values, list):
        raise InspectionError(f"{path}: a list of facts belongs there.")
    return [_fact(value, f"{path}, object {number}") for number, value in enumerate(values, 1)]


def _fact(value: Any, where: str) -> Fact:
    if not isinstance(value, Mapping):
        raise InspectionError(f"{where}: it is no object.")
    try:
        return Fact(**(_from_counterfact(value) if "target_new" in value else _known(value)))
    except KeyError as error:
        raise InspectionError(f"{where}: it has no {error.args[0]}.") from None
    except (TypeError, ValueError) as error:
        raise InspectionError(f"{where}: {error}") from None


def _known(value: Mapping[str, Any]) -> dict[str, Any]:
    names = [field.name for field in fields(Fact)]
    for name in value:
        if name not in names:
            raise InspectionError(f"{name}: a fact has {', '.join(names)}.")
    missing = [name for name in ("subject", "prompt", "target") if name not in value]
    if missing:
        raise KeyError(missing[0])
    return {name: tuple(given) if isinstance(given, list) else given for name, given in value.items()}


def _from_counterfact(value: Mapping[str, Any]) -> dict[str, Any]:
    prompt, subject = value["prompt"], value["subject"]
    start = prompt.rfind(subject)
    if start < 0:
        raise InspectionError(f"its prompt does not name its subject, {subject!r}.")
    return {
        "subject": subject,
        "prompt": prompt[:start] + SLOT + prompt[start + len(subject) :],
        "target": value["target_new"],
        "true": value.get("ground_truth"),
        "rephrased": tuple(filter(None, [value.get("rephrase_prompt")])),
        "elsewhere": tuple(filter(None, [value.get("locality_prompt")])),
    }


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer:
    """The checkpoint's tokenizer. Raises ``InspectionError`` where facts cannot be read with it."""
    a = checkpoint.architecture
    if a.kind != "decoder" or a.head != "language":
        raise InspectionError(f"edit: facts are changed in a decoder's language model, and this is an {a.kind}'s.")
    if checkpoint.tokenizer is None:
        raise InspectionError("edit: the checkpoint has no tokenizer to read facts with; give one that has.")
    return checkpoint.tokenizer
