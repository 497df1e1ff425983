"""GPT-J: attention and FFN side by side behind one norm, neighbouring dimensions turned together, a bias on logits."""

from typing import Any

from plait.architecture import Rope
from plait.families.gpt2 import GPT2
from plait.families.operations import Fields
from plait.families.settings import Reading, Setting, key


def _rope(reading: Reading) -> Rope:
    dim = reading.config.get("rotary_dim", 64)
    return Rope(dim=None if dim == reading.d_head else dim, interleaved=True)


def _spell(rope: Rope | None, fields: Fields) -> dict[str, Any]:
    return {"rotary_dim": rope.dim or fields["d_head"]} if rope else {}


GPTJ = GPT2.relative(
    "gptj",
    classes=("GPTJForCausalLM", "GPTJModel"),
    settings={
        "vocab_size": key("vocab_size", 50400),
        "d_model": key("n_embd", 4096),
        "n_decoder_layers": key("n_layer", 28),
        "n_heads": key("n_head", 16),
        "max_length": key("n_positions", 2048),
        "parallel": "shared",
        "position": "rope",
        "rope": Setting(("rotary_dim",), _rope, _spell),
        "qkv_bias": False,
        "output_bias": False,
        "attention_scale": None,
        "logit_bias": True,
    },
    weights={
        "embedding.positions": None,
        "decoder.layers.{i}.attention.{query,key,value}": "h.{i}.attn.{q,k,v}_proj",
        "decoder.layers.{i}.attention.output": "h.{i}.attn.out_proj",
        "decoder.layers.{i}.ffn.{up,down}": "h.{i}.mlp.{fc_in,fc_out}",
    },
    tied=False,
    leftovers=(r"h\.\d+\.attn\.(bias|masked_bias|embed_positions)",),
    ignored=frozenset({"rotary", "scale_attn_weights"}),
)
