"""Names: what TransformerLens calls the values that plait's sites show, so that its notebooks can be read here.

Theirs have heads behind places, ``(b, n, h, d)``; here heads come first, ``(b, h, n, d)``. Their ``pattern`` and
``scores`` are as here. What has no site is not in the table: normed values (``ln1.hook_normalized``), and a head's own
output, which is a product of ``mix`` and a slice of ``attention.output`` (see ``attribute``).
"""

from __future__ import annotations

import re

from plait.inspection.errors import InspectionError

# of a decoder; {i} is the layer. Of an encoder alone (their HookedEncoder) the tower is "encoder".
ALIASES = {
    "hook_embed": "embedding.output",  # theirs is without positions, where those are added
    "blocks.{i}.hook_resid_pre": "{tower}.layers.{before}.output",
    "blocks.{i}.hook_resid_mid": "{tower}.layers.{i}.after_attention",
    "blocks.{i}.hook_resid_post": "{tower}.layers.{i}.output",
    "blocks.{i}.hook_attn_out": "{tower}.layers.{i}.attention_branch",
    "blocks.{i}.hook_mlp_out": "{tower}.layers.{i}.ffn_branch",
    "blocks.{i}.attn.hook_rot_q": "{tower}.layers.{i}.attention.queries",
    "blocks.{i}.attn.hook_rot_k": "{tower}.layers.{i}.attention.keys",
    "blocks.{i}.attn.hook_q": "{tower}.layers.{i}.attention.queries",
    "blocks.{i}.attn.hook_k": "{tower}.layers.{i}.attention.keys",
    "blocks.{i}.attn.hook_v": "{tower}.layers.{i}.attention.values",
    "blocks.{i}.attn.hook_attn_scores": "{tower}.layers.{i}.attention.scores",
    "blocks.{i}.attn.hook_pattern": "{tower}.layers.{i}.attention.pattern",
    "blocks.{i}.attn.hook_z": "{tower}.layers.{i}.attention.mix",
    "blocks.{i}.mlp.hook_pre": "{tower}.layers.{i}.ffn.hidden",
    "blocks.{i}.mlp.hook_post": "{tower}.layers.{i}.ffn.activation",
    "ln_final.hook_normalized": "{tower}.output",
}


def site_of(hook: str, tower: str = "decoder") -> str:
    """The site that shows what TransformerLens's ``hook`` does: ``blocks.3.attn.hook_pattern`` is
    ``decoder.layers.3.attention.pattern``.

    Raises ``InspectionError`` for a hook that has none.
    """
    layer = re.match(r"blocks\.(\d+)\.", hook)
    index = int(layer[1]) if layer else 0
    pattern = hook if layer is None else f"blocks.{{i}}.{hook[layer.end() :]}"
    if pattern not in ALIASES:
        raise InspectionError(f"{hook}: no site shows that; there are {', '.join(ALIASES)}.")
    if pattern.endswith("hook_resid_pre") and index == 0:
        return "embedding.output"
    return ALIASES[pattern].format(tower=tower, i=index, before=index - 1)
