"""Search: how a beam search goes, as one frozen record; what the caller leaves open, the checkpoint's rules decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from plait.checkpoint.notice import notice
from plait.generation.errors import GenerationError

if TYPE_CHECKING:
    from plait.checkpoint import DecodeRules

EarlyStopping = bool | Literal["never"]
_CALLERS = ("beams", "n_best")  # settled apart: the rest is what the rules say, unless the caller does


@dataclass(frozen=True, kw_only=True)
class Search:
    """How a beam search goes.

    Args:
        beams: continuations that are written on at every step.
        n_best: how many of those that ended are handed out.
        length_penalty: a score is the sum of log-probabilities over (new tokens, the end included) ** length_penalty: 0
            is the sum, 1 the mean; the larger, the longer are the texts.
        early_stopping: when a row is done that has as many ended ones as beams. ``True``: at once. ``False``: when none
            that is being written would beat the worst of them if it ended now. ``"never"``: when none could at any
            length it may still have.
        renormalize: what the rules leave of a distribution is one again. Without it a score is the model's own
            log-probability, that of banned tokens left unused.
        beam_groups: diverse beam search (Vijayakumar et al. 2016): the beams are so many groups, written in turn.
        diversity: taken, when a group chooses its next tokens, for each time an earlier group chose the same at this
            step; no part of a score.

    Raises ``GenerationError`` where a value makes no sense.
    """

    beams: int
    n_best: int = 1
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    renormalize: bool = False
    beam_groups: int = 1
    diversity: float = 0.0

    def __post_init__(self) -> None:
        for name in ("beams", "n_best", "beam_groups"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise GenerationError(f"{name}: {value!r} makes no sense; give a whole number from 1.")
        for name, least, most in (("length_penalty", -30, 30), ("diversity", 0, 1e30)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise GenerationError(f"{name}: {value!r} makes no sense; give a number from {least} to {most:g}.")
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise GenerationError(f"early_stopping: {self.early_stopping!r} is neither True, False nor 'never'.")
        if self.n_best > self.beams:
            beams = "1 beam" if self.beams == 1 else f"{self.beams} beams"
            raise GenerationError(f"n_best: {self.n_best} is more than {beams}; give as many beams at least.")
        if self.beams % self.beam_groups:
            raise GenerationError(
                f"beam_groups: {self.beams} beams are not {self.beam_groups} groups of one size; give a divisor."
            )
        if (self.diversity == 0) != (self.beam_groups == 1):
            raise GenerationError(
                f"beam_groups, diversity: {self.beam_groups} and {self.diversity:g} do not go together; give several "
                "groups and a diversity above 0, or neither."
            )

    @property
    def width(self) -> int:
        """Beams of a group."""
        return self.beams // self.beam_groups

    def score(self, total: float, length: int) -> float:
        """Of ``length`` new tokens whose log-probabilities sum to ``total``; what was read first does not count."""
        return total / length**self.length_penalty


def settle_search(rules: DecodeRules, wishes: dict[str, Any]) -> Search | None:
    """The caller's ``wishes`` for a beam search, which are taken out, over the checkpoint's rules; ``None`` where it is
    one beam, which is no search, or where tokens are drawn."""
    asked = {name: wishes.pop(name, None) for name in Search.__annotations__}
    given = {name: value for name, value in asked.items() if value is not None}
    drawn = (wishes.get("temperature") or 0) > 0
    beams = given.pop("beams", 1 if drawn else rules.beams)
    own = {} if beams == 1 else {name: getattr(rules, name) for name in Search.__annotations__ if name not in _CALLERS}
    search = Search(beams=beams, **{**own, **given})
    if beams == 1:
        if without := [name for name in given if name not in _CALLERS]:
            raise GenerationError(f"{without[0]}: it changes nothing without a beam search; give beams from 2.")
        return None
    if drawn:
        raise GenerationError(
            f"beams: {beams} are searched for the likeliest, not drawn; give temperature=0, or beams=1."
        )
    if rules.sample and wishes.get("temperature") is None:
        notice(f"rules: the checkpoint asks for {beams} beams and for drawn tokens; the likeliest are searched for.")
    wishes["temperature"] = 0.0
    return search
