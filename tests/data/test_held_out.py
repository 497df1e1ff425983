"""Which samples are kept for evaluation: about the share, always the same, equal texts together."""

from __future__ import annotations

import pytest

from plait.data.held_out import held_out


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5])
def test_the_share_is_about_what_is_asked_for(share: float):
    kept = sum(held_out(f"sentence {n}", share) for n in range(20_000))
    assert kept / 20_000 == pytest.approx(share, abs=0.01)


def test_more_is_kept_with_a_larger_share_and_never_other_texts():
    texts = [f"sentence {n}" for n in range(1000)]
    small, large = ({text for text in texts if held_out(text, share)} for share in (0.1, 0.2))
    assert small < large


def test_it_is_the_same_in_every_process():
    assert [n for n in range(30) if held_out(f"sentence {n}", 0.1)] == [28]
