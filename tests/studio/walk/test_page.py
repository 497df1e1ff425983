"""The walk's page: one file with all numbers of the pass in it, each once, within its limit."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import numpy as np
import pytest

from plait.inspection import InspectionError
from plait.studio.walk.packed import packed
from tests.studio.walk.walking import KINDS, page_of, walked


def unpacked(data: dict[str, Any], name: str) -> np.ndarray:
    block, *shape = data["arrays"][name]
    return np.frombuffer(base64.b64decode(data["blocks"][block]), "<f4").reshape(shape)


@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_are_the_passs(kind: str) -> None:
    walk, _ = walked(kind)
    data = packed(walk)
    assert set(data["arrays"]) == set(walk.arrays)
    for name, value in walk.arrays.items():
        assert np.array_equal(unpacked(data, name), value.float().numpy()), name
    assert len(data["blocks"]) == len(set(data["blocks"])) < len(data["arrays"])


def test_layers_that_are_alike_share_their_steps() -> None:
    walk, _ = walked("encoder-decoder")
    encoder, decoder = packed(walk)["towers"]
    assert len(encoder["plans"]) == len(decoder["plans"]) == 1 and decoder["layers"] == [0, 0, 0]
    assert len(decoder["plans"][0]) == len(walk.towers[1].layers[0])


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_needs_nothing_else(kind: str) -> None:
    page = page_of(kind, language="zh")
    assert page.startswith('<!doctype html>\n<html lang="zh">') and f"a &lt;{kind}&gt;" in page
    assert not re.search(r"""(src|href)=["']|@import|url\(|https?:""", re.sub(r'"[A-Za-z0-9+/=]{40,}"', "", page))
    found = re.search(r"^const DATA = (.*);$", page, re.MULTILINE)
    assert found is not None and json.loads(found[1])["first"]["tower"] == len(walked(kind)[0].towers) - 1


def test_a_text_that_is_too_long_is_refused_in_words() -> None:
    walk, _ = walked("decoder")
    n = len(walk.towers[0].tokens)
    with pytest.raises(InspectionError, match=rf"text: a page of its {n} tokens has \d+ MB of numbers, and 0.05 are"):
        packed(walk, megabytes=0.05)
