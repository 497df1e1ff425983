"""ModernBERT with a causal mask; queries, keys and values in matrices of their own."""

from plait.families.family import Family
from plait.families.modernbert import MODERNBERT
from plait.families.modernbert_stack import SETTINGS, WEIGHTS
from plait.families.settings import key

MODERNBERT_DECODER = Family(
    name="modernbert-decoder",
    model_types=("modernbert-decoder",),
    classes=("ModernBertDecoderForCausalLM", "ModernBertDecoderModel"),
    settings={**SETTINGS, "n_decoder_layers": key("num_hidden_layers", 22)},
    weights={
        **WEIGHTS,
        "decoder.layers.{i}.attention.{query,key,value}": "layers.{i}.attn.{q,k,v}_proj",
        "head.{dense,norm,output}": "{lm_head.dense,lm_head.norm,decoder}",
    },
    tied=True,
    prefix="model.",
    ignored=MODERNBERT.ignored | {"sliding_window"},  # half of local_attention, whatever it says
    ids=MODERNBERT.ids,
    tokenizer=None,
)
