"""Transformer: the figure of the paper. An encoder, a decoder, or both, between an embedding and a head.

tokens -> embedding -> decoder layers -> norm -> head -> logits
                           ^ cross
source -> source_embedding -> encoder layers -> norm
"""

from __future__ import annotations

import torch
from torch import Tensor

from plait.architecture import Architecture
from plait.model.cache import Cache
from plait.model.embedding import Embedding
from plait.model.head import Head, last_real
from plait.model.initialization import initialize
from plait.model.linear import Table
from plait.model.mask import Places, place
from plait.model.sites import Part
from plait.model.stack import Stack, row_lengths


class Transformer(Part):
    """Any Transformer that an ``Architecture`` describes, freshly drawn by ``initialize``; on the meta device, empty.

    Parameter names are one table, whatever the kind: ``decoder.layers.0.attention.query.weight``.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        a = self.architecture = architecture
        encodes, decodes = a.n_encoder_layers > 0, a.n_decoder_layers > 0
        self.embedding = Embedding(a, a.vocab_size if decodes else a.source_vocab_size, types=not decodes)
        self.source_embedding = None
        if encodes and decodes:
            rows = None if a.shares_embedding else a.source_vocab_size
            self.source_embedding = Embedding(a, rows, types=True)
        self.encoder = Stack(a, a.tower("encoder")) if encodes else None
        self.decoder = Stack(a, a.tower("decoder")) if decodes else None
        self.head = Head(a) if a.head is not None else None
        self.sites = ("logits",) if a.head is not None else ()
        if not self._token_table().weight.is_meta:
            initialize(self)

    def forward(
        self,
        tokens: Tensor,
        *,
        mask: Tensor | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        token_types: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Cache | None = None,
        last_only: bool = False,
    ) -> Tensor:
        """Logits ``(b, n, vocab_size)``; hidden states ``(b, n, d_model)`` without a head; ``(b, labels)`` to classify.

        Args:
            tokens: ``(b, n)`` integers; with a cache, the new ones only.
            mask: ``(b, n)``, True is real, on whatever side the padding is. Integers are document numbers, 0 is
                padding: documents packed in one row see nothing of each other and count their positions from 0.
            source, source_mask: ``(b, m)``, what an encoder-decoder's encoder reads; with a cache, at the first call.
            token_types: ``(b, n)`` integers, for an encoder that has types; of the source in an encoder-decoder.
            positions: ``(b, n)`` integers, instead of counting the real tokens.
            cache: keys and values of earlier tokens, to which these are added.
            last_only: the head reads only the last real token of each row: ``(b, 1, vocab_size)``.

        Raises ``ValueError`` for shapes that do not fit, tokens outside the table, and rows longer than the positions
        there are.
        """
        _check_tokens(
            "tokens", tokens, mask=mask, positions=positions, token_types=None if source is not None else token_types
        )
        _check_cache(tokens, mask, cache)
        places = place(mask, positions, tokens.shape[1], tokens.device)
        if self.decoder is None:
            if cache is not None or source is not None:
                raise ValueError("cache, source: an encoder reads its whole input at once; it takes neither.")
            hidden = self._encode(self.embedding, tokens, places, token_types)
        else:
            memory, memory_places = self._memory(source, source_mask, token_types, cache)
            regular = mask is None and positions is None
            places, held = cache.begin(places, regular) if cache is not None else (places, places)
            types = None if self.encoder is not None else token_types  # an encoder's are its source's
            x = self.embedding(tokens, places, types, self._token_table())
            hidden = self.decoder(
                x,
                places,
                held,
                _totals(self.architecture, cache, held),
                memory=memory,
                memory_places=memory_places,
                cache=cache,
            )
            if cache is not None:
                cache.commit(held, tokens.shape[1], regular)
        real = places.real
        if last_only:
            hidden, real = last_real(hidden, real), None
        if self.head is None:
            return hidden
        return self.site("logits", self.head(hidden, self._token_table().weight, real))

    def encode(self, source: Tensor, mask: Tensor | None = None, token_types: Tensor | None = None) -> Tensor:
        """The encoder's last hidden states, ``(b, m)`` -> ``(b, m, d_model)``."""
        _check_tokens("source", source, mask=mask, token_types=token_types)
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        return self._encode(embedding, source, place(mask, None, source.shape[1], source.device), token_types)

    def _encode(self, embedding: Embedding, tokens: Tensor, places: Places, token_types: Tensor | None) -> Tensor:
        if self.encoder is None:
            raise ValueError("source: a decoder alone has no encoder to read it.")
        table = embedding.tokens if embedding.tokens is not None else self._token_table()
        x = embedding(tokens, places, token_types, table)
        return self.encoder(x, places, places, row_lengths(places))

    def _memory(
        self, source: Tensor | None, source_mask: Tensor | None, token_types: Tensor | None, cache: Cache | None
    ) -> tuple[Tensor | None, Places | None]:
        """What the decoder attends to besides itself: just encoded, or remembered by the cache."""
        if self.encoder is None:
            if source is not None:
                raise ValueError("source: a decoder alone has no encoder to read it.")
            return None, None
        if source is None:
            if source_mask is not None:
                raise ValueError("source_mask: there is no source beside it.")
            if cache is None or cache.memory_places is None:
                raise ValueError(
                    "source: an encoder-decoder needs the tokens to encode; a cache remembers them after one call."
                )
            return None, cache.memory_places
        if cache is not None and cache.memory_places is not None:
            raise ValueError("source: this cache already holds an encoded source; pass it once, at the first call.")
        memory = self.encode(source, source_mask, token_types)
        places = place(source_mask, None, source.shape[1], source.device)
        if cache is not None:
            cache.memory_places = places
        return memory, places

    def _token_table(self) -> Table:
        assert self.embedding.tokens is not None
        return self.embedding.tokens


def _totals(a: Architecture, cache: Cache | None, held: Places) -> Tensor:
    """How long each row is declared to become, ``(b or 1,)``; without a declaration, how long it is."""
    at_hand = row_lengths(held)
    if cache is None:
        return at_hand
    if cache.total_lengths is not None:
        return cache.total_lengths.to(at_hand.device)
    scalings = (layer.rope.scaling for layer in a.tower("decoder").layers if layer.rope is not None)
    limits = [s.original_max_length or 0 for s in scalings if s is not None and s.by_length]
    if limits and cache.slots and int(at_hand.max()) > min(limits):
        raise ValueError(
            f"cache: rows grew to {int(at_hand.max())} tokens, past the original length of {limits[0]} that their "
            "rotations were chosen for; declare how long they will become with Cache(total_lengths=...)."
        )
    return at_hand


def _check_tokens(name: str, tokens: Tensor, **beside: Tensor | None) -> None:
    """Tokens are whole numbers in rows; what stands beside them has one value for each."""
    if tokens.ndim != 2 or tokens.is_floating_point() or tokens.dtype == torch.bool or tokens.shape[1] == 0:
        got = f"{tokens.dtype} of {tuple(tokens.shape)}"
        raise ValueError(f"{name}: expected integers of shape (batch, length), length at least 1, got {got}.")
    for other, value in beside.items():
        if value is None:
            continue
        if value.shape != tokens.shape:
            raise ValueError(
                f"{other}: shape {tuple(value.shape)} does not fit {name} of shape {tuple(tokens.shape)}; give one "
                "value for each token (a mask of queries by keys is made from it)."
            )
        if value.is_floating_point():
            raise ValueError(f"{other}: {value.dtype} is neither boolean nor whole numbers.")


def _check_cache(tokens: Tensor, mask: Tensor | None, cache: Cache | None) -> None:
    if cache is not None and len(tokens) != cache.batch:
        raise ValueError(f"tokens: {len(tokens)} rows, but the cache was made for {cache.batch}.")
    if cache is not None and mask is not None and mask.dtype != torch.bool and bool((mask > 1).any()):
        raise ValueError("mask: packed documents are read in one pass, without a cache.")
