"""Lowering: from the built module tree to programs. One emitter for each Part; neighbours are then fused.

The tree may be on the meta device: only its shapes, scalars and canonical names are read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import cast

from plait.architecture import Activation, Pooling
from plait.engine import program as p
from plait.engine.program import Operation, Program, Register, Space, View
from plait.model import Transformer
from plait.model.attention import Attention
from plait.model.block import Block
from plait.model.embedding import Embedding
from plait.model.experts import Experts
from plait.model.feedforward import ACTIVATIONS, FeedForward
from plait.model.head import Head
from plait.model.norm import Norm, Slots
from plait.model.stack import Stack

_NAMES: dict[object, Activation] = {act: name for name, act in ACTIVATIONS.items()}


def lower(model: Transformer, format: Callable[[str], object] = lambda name: None) -> dict[str, Program]:
    """The programs of a model: ``encoder``, ``decoder``, or both. The encoder of an encoder-decoder ends by storing its
    states' keys and values for every layer of the decoder; otherwise a program ends with the head, where there is one.

    ``format`` of a parameter's name: only matrices of one format become one.
    """
    programs: dict[str, Program] = {}
    if model.encoder is not None:
        emitter = _Emitter(model, "encoder", format)
        x = emitter.tower(model.source_embedding or model.embedding, model.encoder)
        if model.decoder is not None:
            emitter.remember(x, model.decoder)
        programs["encoder"] = emitter.finish(x.register if model.decoder is not None else emitter.head(x))
    if model.decoder is not None:
        emitter = _Emitter(model, "decoder", format)
        x = emitter.tower(model.embedding, model.decoder)
        programs["decoder"] = emitter.finish(emitter.head(x))
    return programs


class _Emitter:
    """Writes the operations of one tower. A method takes where its input is and says where its output is."""

    def __init__(self, model: Transformer, tower: str, format: Callable[[str], object]) -> None:
        self.model, self.tower_name, self.format = model, tower, format
        self.architecture = model.architecture
        self.operations: list[Operation] = []
        self.names = {id(parameter): name for name, parameter in model.named_parameters()}

    def finish(self, output: Register) -> Program:
        causal = self.tower_name == "decoder"
        return Program(self.tower_name, tuple(fuse(self.operations, self.format)), output, causal)

    def name(self, parameter: object) -> str | None:
        return None if parameter is None else self.names[id(parameter)]

    def weight(self, parameter: object) -> str:
        return self.names[id(parameter)]

    def linear(self, layer: object, source: View, target: View) -> View:
        weight, bias = (self.weight(layer.weight),), (self.name(layer.bias),)  # pyright: ignore
        self.operations.append(p.Linear(source=source, target=target, weight=weight, bias=bias))
        return target

    def norm(self, norm: Norm, source: View, target: View) -> View:
        weight, bias = self.name(norm.weight), self.name(norm.bias)
        shape = {"width": norm.width, "eps": norm.eps, "centred": norm.centred, "offset": norm.offset}
        self.operations.append(p.Norm(source=source, target=target, weight=weight, bias=bias, **shape))
        return target

    # The parts, whole before parts

    def tower(self, embedding: Embedding, stack: Stack) -> View:
        x = self.embedding(embedding)
        relative: Attention | None = None
        for block, kind in zip(stack.blocks, stack.tower.layers, strict=True):
            relative = block.attention if block.attention.relative_bias is not None else relative
            self.block(block, x, stack, kind.window, kind.rope, relative)
        return x if stack.norm is None else self.norm(stack.norm, x, x)

    def embedding(self, part: Embedding) -> View:
        a = self.architecture
        x = Register(p.STREAM, a.d_model).whole
        target = x if part.projection is None else Register("embedded", part.width).whole
        table = part.tokens if part.tokens is not None else self.model.embedding.tokens
        assert table is not None
        self.operations.append(
            p.Embed(
                target=target,
                table=self.weight(table.weight),
                scale=part.scale,
                positions=None if part.positions is None else self.weight(part.positions.weight),
                sinusoid=part.sinusoid,
                offset=part.offset,
                types=None if part.types is None else self.weight(part.types.weight),
            )
        )
        if part.norm is not None:
            self.norm(part.norm, target, target)
        return target if part.projection is None else self.linear(part.projection, target, x)

    def block(
        self, part: Block, x: View, stack: Stack, window: int | None, rope: object, relative: Attention | None
    ) -> None:
        entered = self.enter(part.attention_norms, x)
        space: Space = "self" if stack.tower.causal else "pass"
        layer = part.index if stack.tower.causal else 0  # an encoder's keys are of use within their layer alone
        shared = {"window": window, "alibi": stack.alibi, "causal": stack.tower.causal}
        if relative is not None and relative.relative_bias is not None:
            shared["relative"] = relative.relative_bias.spec
            shared["relative_weight"] = self.weight(relative.relative_bias.weight)
        mix = self.attention(part.attention, entered, space, layer, rope, shared)
        if part.parallel != "none":  # all that reads x comes before what is added to it
            entered = entered if part.parallel == "shared" else self.enter(part.ffn_norms, x)
            fired = self.hidden(part.ffn, entered)
            self.leave(part.attention_norms, x, self.linear(part.attention.output, mix, self.branch))
            self.add(x, self.after(part.ffn_norms, self.down(part.ffn, fired)), part.ffn_norms)
            return
        self.leave(part.attention_norms, x, self.linear(part.attention.output, mix, self.branch))
        if part.cross is not None and part.cross_norms is not None:
            entered = self.enter(part.cross_norms, x)
            queries = self.queries(part.cross, entered, None)
            mix = self.attend(part.cross, queries, "memory", part.index, {"causal": False})
            self.leave(part.cross_norms, x, self.linear(part.cross.output, mix, self.branch))
        fired = self.hidden(part.ffn, self.enter(part.ffn_norms, x))
        self.leave(part.ffn_norms, x, self.down(part.ffn, fired))

    @property
    def branch(self) -> View:
        return Register("branch", self.architecture.d_model).whole

    def enter(self, slots: Slots, x: View) -> View:
        normed = Register("normed", self.architecture.d_model).whole
        return x if slots.before is None else self.norm(slots.before, x, normed)

    def after(self, slots: Slots, y: View) -> View:
        return y if slots.after is None else self.norm(slots.after, y, y)

    def add(self, x: View, y: View, slots: Slots, skip: float = 1.0) -> None:
        self.operations.append(p.Add(target=x, source=y, skip=skip, scale=slots.residual_scale))

    def leave(self, slots: Slots, x: View, y: View) -> None:
        self.add(x, self.after(slots, y), slots, slots.skip_scale)
        if slots.merge is not None:
            self.norm(slots.merge, x, x)

    def attention(self, part: Attention, x: View, space: Space, layer: int, rope: object, shared: dict) -> View:
        queries = self.queries(part, x, rope)
        self.keys_values(part, x, rope, space, layer)
        return self.attend(part, queries, space, layer, shared)

    def heads(self, part: Attention) -> tuple[View, View, View]:
        """Queries, keys and values side by side in one register."""
        wide, narrow = part.query.out_features, part.key.out_features
        register = Register("heads", wide + 2 * narrow)
        return (
            register.columns(0, wide),
            register.columns(wide, narrow),
            register.columns(wide + narrow, narrow),
        )

    def queries(self, part: Attention, x: View, rope: object) -> View:
        queries, _, _ = self.heads(part)
        self.linear(part.query, x, queries)
        self.refine(part, queries, part.query_norm, rope)
        return queries

    def keys_values(self, part: Attention, x: View, rope: object, space: Space, layer: int) -> None:
        _, keys, values = self.heads(part)
        self.linear(part.key, x, keys)
        self.linear(part.value, x, values)
        self.refine(part, keys, part.key_norm, rope)
        self.refine(part, values, None, None)
        store = p.Store(target=keys, values=values, space=space, layer=layer, d_head=part.d_head)
        self.operations.append(store)

    def refine(self, part: Attention, heads: View, norm: Norm | None, rope: object) -> None:
        """Norm, clip and turn the heads, in place."""
        if norm is not None and not part.turns_first:
            self.norm(norm, heads, heads)
        if part.clip is not None:
            self.operations.append(p.Clamp(target=heads, limit=part.clip))
        if rope is not None:
            self.operations.append(p.Rotate(target=heads, d_head=part.d_head, rope=rope))  # pyright: ignore
        if norm is not None and part.turns_first:
            self.norm(norm, heads, heads)

    def attend(self, part: Attention, queries: View, space: Space, layer: int, shared: dict) -> View:
        mix = Register("mix", queries.width).whole
        self.operations.append(
            p.Attend(
                target=mix,
                queries=queries,
                space=space,
                layer=layer,
                n_heads=part.query.out_features // part.d_head,
                n_kv_heads=part.key.out_features // part.d_head,
                d_head=part.d_head,
                scale=part.scale,
                softcap=part.softcap,
                sinks=self.name(part.sinks),
                **shared,
            )
        )
        return mix

    def hidden(self, part: FeedForward | Experts, x: View) -> View:
        """What ``down`` makes of x at last; of experts, which have a ``down`` each, all that they make."""
        if isinstance(part, Experts):
            return self.experts(part, x)
        width, act = part.up.out_features, _NAMES[part.act]
        register = Register("hidden", width if part.gate is None else 2 * width)
        first = register.columns(0, width)
        if part.gate is None:
            self.linear(part.up, x, first)
            self.operations.append(p.Activate(target=first, activation=act))
        else:
            second = register.columns(width, width)
            self.linear(part.gate, x, first)
            self.linear(part.up, x, second)
            limits = {"limit": part.limit, "offset": part.offset}
            self.operations.append(p.Gate(target=first, up=second, activation=act, **limits))
        return first

    def down(self, part: FeedForward | Experts, fired: View) -> View:
        return fired if isinstance(part, Experts) else self.linear(part.down, fired, self.branch)

    def experts(self, part: Experts, x: View) -> View:
        spec, own = part.router.spec, part.experts
        routes = self.linear(part.router, x, Register("routes", spec.n_experts).whole)
        self.operations.append(p.Route(target=routes, spec=spec, score_bias=self.name(part.router.score_bias)))
        shared: dict[str, View] = {}
        if part.shared is not None:
            made = Register("shared", self.architecture.d_model).whole
            shared["shared"] = self.linear(part.shared.down, self.hidden(part.shared, x), made)
        if part.shared_gate is not None:
            shared["shared_gate"] = self.linear(part.shared_gate, x, Register("shared_gate", 1).whole)
        target = Register("experts", self.architecture.d_model).whole
        self.operations.append(
            p.Experts(
                target=target,
                source=x,
                routes=routes,
                **shared,
                n_experts=spec.n_experts,
                per_token=spec.per_token,
                activation=_NAMES[part.act],
                limit=part.limit,
                offset=part.offset,
                gate=None if own.gate is None else self.weight(own.gate.weight),
                up=self.weight(own.up.weight),
                down=self.weight(own.down.weight),
                gate_bias=None if own.gate is None else self.name(own.gate.bias),
                up_bias=self.name(own.up.bias),
                down_bias=self.name(own.down.bias),
            )
        )
        return target

    def remember(self, memory: View, decoder: Stack) -> None:
        for block in decoder.blocks:
            assert block.cross is not None
            self.keys_values(block.cross, memory, None, "memory", block.index)

    def head(self, x: View) -> Register:
        part: Head | None = self.model.head
        taken = Register("taken", x.width, taken=True).whole
        if part is not None and part.pooling is not None:
            self.operations.append(p.Pool(target=taken, source=x, pooling=cast(Pooling, part.pooling)))
        else:
            self.operations.append(p.Take(target=taken, source=x))
        if part is None:
            return taken.register
        y = taken
        if part.act is not None:
            y = Register("transformed", part.dense.out_features, taken=True).whole
            self.linear(part.dense, taken, y)
            self.operations.append(p.Activate(target=y, activation=_NAMES[part.act]))
            if part.norm is not None:
                self.norm(part.norm, y, y)
        table = self.model.embedding.tokens
        weight = part.output.weight if part.output.weight is not None or table is None else table.weight
        assert weight is not None
        logits = Register("logits", weight.shape[0], taken=True).whole
        bias = (self.name(part.output.bias),)
        self.operations.append(p.Linear(source=y, target=logits, weight=(self.weight(weight),), bias=bias))
        if part.scale != 1.0 or part.softcap is not None:
            self.operations.append(p.Cap(target=logits, scale=part.scale, softcap=part.softcap))
        return logits.register


def fuse(operations: Iterable[Operation], format: Callable[[str], object]) -> list[Operation]:
    """Let neighbours be one, where that saves a pass over a register or a wait of the threads."""
    fused: list[Operation] = []
    for operation in hoisted(operations):
        last = fused[-1] if fused else None
        joined = _join(last, operation, format) if isinstance(last, p.Linear) else None
        if joined is None:
            fused.append(operation)
        else:
            fused[-1] = joined
    return fused


def hoisted(operations: Iterable[Operation]) -> list[Operation]:
    """Linears that read the same columns, moved next to each other over what does not touch what they read or write."""
    moved: list[Operation] = []
    for operation in operations:
        at = len(moved)
        if isinstance(operation, p.Linear):
            touched = (operation.source, operation.target)
            while at and not any(a.overlaps(b) for a in p.views(moved[at - 1]) for b in touched):
                at -= 1
            before = moved[at - 1] if at else None
            if not (isinstance(before, p.Linear) and before.source == operation.source):
                at = len(moved)
        moved.insert(at, operation)
    return moved


def _join(last: p.Linear, operation: Operation, format: Callable[[str], object]) -> p.Linear | None:
    """One operation that does what both did, if there is one."""
    plain = last.activation is None and not last.add
    match operation:
        case p.Linear() if (
            plain
            and operation.source == last.source
            and _follows(last.target, operation.target)
            and format(operation.weight[0]) == format(last.weight[0])
        ):
            target = dataclasses.replace(last.target, width=last.target.width + operation.target.width)
            weight, bias = last.weight + operation.weight, last.bias + operation.bias
            return dataclasses.replace(last, target=target, weight=weight, bias=bias)
        case p.Activate() if plain and operation.target == last.target:
            return dataclasses.replace(last, activation=operation.activation)
        case p.Add() if not last.add and operation.source == last.target and operation.source != operation.target:
            added = {"add": True, "skip": operation.skip, "scale": operation.scale}
            return dataclasses.replace(last, target=operation.target, **added)
    return None


def _follows(a: View, b: View) -> bool:
    return a.register == b.register and a.start + a.width == b.start
