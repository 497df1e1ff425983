"""Two texts in one row, as rerankers read them: where each stands, what goes around them, the type of every token."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tokenizers import Tokenizer as Library

Item = tuple[int | Literal["A", "B"], int]
Pair = tuple[Item, ...]  # ids, and A and B where the texts stand, each with its type


def bert_pair(cls: int, sep: int) -> Pair:
    """[CLS] a [SEP] b [SEP], the second text of type 1 with its end."""
    return (cls, 0), ("A", 0), (sep, 0), ("B", 1), (sep, 1)


def roberta_pair(cls: int, sep: int) -> Pair:
    """<s> a </s></s> b </s>, all of one type."""
    return (cls, 0), ("A", 0), (sep, 0), (sep, 0), ("B", 0), (sep, 0)


FORMS = {"bert": bert_pair, "roberta": roberta_pair}


def pair_of(library: Library) -> Pair | None:
    """The form that the library's post-processor gives two texts; None where it has none."""
    processor = library.post_processor
    return None if processor is None else _form(json.loads(processor.__getstate__()))


def joined(pair: Pair, first: Sequence[int], second: Sequence[int]) -> tuple[list[int], list[int]]:
    """The ids of a row and their types."""
    ids: list[int] = []
    types: list[int] = []
    for item, type in pair:
        part = [item] if isinstance(item, int) else first if item == "A" else second
        ids += part
        types += [type] * len(part)
    return ids, types


def _form(processor: Mapping[str, Any]) -> Pair | None:
    kind = processor["type"]
    if kind in ("BertProcessing", "RobertaProcessing"):
        make = bert_pair if kind == "BertProcessing" else roberta_pair
        return make(processor["cls"][1], processor["sep"][1])
    if kind == "Sequence":
        forms = [form for form in map(_form, processor["processors"]) if form is not None]
        return forms[0] if len(forms) == 1 else None
    if kind != "TemplateProcessing":
        return None
    items: list[Item] = []
    for item in processor["pair"]:
        if "Sequence" in item:
            items.append((item["Sequence"]["id"], item["Sequence"]["type_id"]))
        else:
            special = item["SpecialToken"]
            items += [(id, special["type_id"]) for id in processor["special_tokens"][special["id"]]["ids"]]
    return tuple(items)
