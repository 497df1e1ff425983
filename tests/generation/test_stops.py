"""Stop strings: nothing of one is shown, everything else is, however the text is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plait.generation.stops import StopStrings


def run(stops: list[str], parts: list[str]) -> tuple[list[str], str, str | None]:
    filtered = StopStrings(stops)
    shown = [filtered.push(part) for part in parts]
    return shown, filtered.close(), filtered.found


def test_ge19_a_stop_over_token_edges_is_met_and_its_start_never_leaks() -> None:
    assert run(["DEFGHIJ"], ["DEF", "G", "HI", "J"]) == (["", "", "", ""], "", "DEFGHIJ")
    assert run(["DEFGHIJ"], ["abcDEF", "G", "HI", "Jk"]) == (["abc", "", "", ""], "", "DEFGHIJ")


def test_ge19_what_only_looked_like_a_stop_comes_out() -> None:
    assert run(["ab"], ["a", "c"]) == (["", "ac"], "", None)
    assert run(["ab"], ["a", "a", "b"]) == (["", "a", ""], "", "ab")
    assert run(["ab"], ["x", "a"]) == (["x", ""], "a", None), "at the end what was held back is shown"
    assert run(["aab"], ["a", "a", "a", "c"]) == (["", "", "a", "aac"], "", None)


def test_of_several_stops_the_first_to_end_counts() -> None:
    assert run(["abcd", "bc"], ["abcd"])[0] == ["a"]
    assert run(["abcd", "bc"], list("abcd"))[0] == ["", "", "a", ""]
    assert run(["c", "abc"], ["abc"]) == ([""], "", "abc"), "of those that end together the longest"


def test_without_stops_everything_passes_at_once() -> None:
    assert run([], ["a", "b"]) == (["a", "b"], "", None)


@given(
    text=st.text("abc", max_size=14),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 14), max_size=6),
)
def test_ge19_the_cuts_change_nothing(text: str, stops: list[str], cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    parts = [text[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    whole, rest, found = run(stops, [text])
    cut, cut_rest, cut_found = run(stops, parts)
    assert ("".join(cut) + cut_rest, cut_found) == ("".join(whole) + rest, found)
    ends = [i for i in range(len(text) + 1) if any(text[:i].endswith(stop) for stop in stops)]
    if not ends:
        assert "".join(whole) + rest == text
    else:
        longest = max(len(stop) for stop in stops if text[: ends[0]].endswith(stop))
        assert "".join(whole) + rest == text[: ends[0] - longest]
