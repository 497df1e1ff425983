"""Transformer: the figure of the paper. An encoder, a decoder, or both, between an embedding and a head.

tokens -> embedding -> decoder layers -> norm -> head -> logits
                           ^ cross
source -> source_embedding -> encoder layers -> norm
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from plait.architecture import Architecture
from plait.model.cache import Cache
from plait.model.checks import check_cached, check_documents, check_source, check_tokens, check_totals
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
        """Logits ``(b, n, vocab_size)``; hidden states ``(b, n, d_model)`` without a head; to classify
        ``(b, labels)``, or ``(b, n, labels)`` where every token is.

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
        inputs = {"mask": mask, "token_types": token_types, "positions": positions, "cache": cache}
        hidden, real = self._states(tokens, source=source, source_mask=source_mask, **inputs)
        if last_only and (self.head is None or self.head.pooling is None):
            hidden, real = last_real(hidden, real), None
        if self.head is None:
            return hidden
        return self.site("logits", self.head(hidden, self._token_table().weight, real))

    def states(self, tokens: Tensor, **inputs: Any) -> Tensor:
        """The last hidden states ``(b, n, d_model)``, after the final norm, before any head; inputs as ``forward``."""
        return self._states(tokens, **inputs)[0]

    def _states(
        self,
        tokens: Tensor,
        *,
        mask: Tensor | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        token_types: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Cache | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states, and which of them are of real tokens."""
        own_types = None if self.source_embedding is not None else token_types
        check_tokens("tokens", tokens, mask=mask, positions=positions, token_types=own_types)
        check_source(self.architecture, source, source_mask, cache)
        if cache is not None:
            mask = check_cached(tokens, mask, cache)
        check_documents(self.architecture, mask)
        places = place(mask, positions, tokens.shape[1], tokens.device)
        if self.decoder is None:
            return self._encode(self.embedding, tokens, places, token_types), places.real
        memory, memory_places = self._memory(source, source_mask, token_types, cache)
        places, held = cache.begin(places) if cache is not None else (places, places)
        totals = check_totals(self.architecture, cache, held)
        x = self.embedding(tokens, places, own_types, self._token_table())
        hidden = self.decoder(x, places, held, totals, memory=memory, memory_places=memory_places, cache=cache)
        if cache is not None:
            cache.commit(held, memory_places)
        return hidden, places.real

    def encode(self, source: Tensor, mask: Tensor | None = None, token_types: Tensor | None = None) -> Tensor:
        """The encoder's last hidden states, ``(b, m)`` -> ``(b, m, d_model)``; ``mask`` and ``token_types`` ``(b, m)``.

        Raises ``ValueError`` for a decoder alone, and as ``forward`` does.
        """
        check_tokens("source", source, mask=mask, token_types=token_types)
        check_documents(self.architecture, mask)
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
        if source is None:
            return None, None if cache is None else cache.memory_places
        if cache is not None:
            cache.memory = [None] * len(cache.memory)  # of a pass that failed
        memory = self.encode(source, source_mask, token_types)
        return memory, place(source_mask, None, source.shape[1], source.device)

    def _token_table(self) -> Table:
        assert self.embedding.tokens is not None
        return self.embedding.tokens
