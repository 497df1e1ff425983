"""ERNIE: BERT, but for a prefix (Sun et al. 2019); one that is told its tasks is refused."""

from plait.families.bert import BERT
from plait.families.heads import pooled

ERNIE = BERT.relative(
    "ernie",
    classes=("ErnieForMaskedLM", "ErnieModel"),
    heads={**BERT.heads, "ForSequenceClassification": pooled("ernie.pooler.dense")},
    prefix="ernie.",
    ignored=frozenset({"task_type_vocab_size"}),  # of a table that use_task_id asks for
)
