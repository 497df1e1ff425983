"""Sites: names for the values inside a forward pass, and the one way to watch or change them.

A module of the model is a ``Part``; it passes each value worth seeing through ``self.site(name, value)``, which is the
identity unless somebody watches. A site's full name is the part's path in the model and the site's own name, as in
``decoder.layers.3.attention.pattern``.
"""

from __future__ import annotations

import difflib
import fnmatch
import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Protocol, Self

from torch import Tensor, nn


class Dropout(Protocol):
    """What training leaves out of a value: a share of it, ``rate``."""

    rate: float

    def __call__(self, x: Tensor, /) -> Tensor:
        """The same shape."""
        ...


Change = Callable[[str, Tensor], Tensor | None]


class Part(nn.Module):
    """A module whose inner values have names: ``sites`` lists them; ``dropout`` is what training leaves out of some."""

    sites: tuple[str, ...] = ()
    _watchers: dict[str, list[_Watcher]] | None = None
    dropout: Dropout | None = None

    def site(self, name: str, value: Tensor) -> Tensor:
        """The value, unless a watcher of this site changes it."""
        if self._watchers is None:
            return value
        for watcher in self._watchers.get(name, ()):
            value = watcher(value)
        return value

    def drop(self, value: Tensor) -> Tensor:
        """The value, less what training leaves out of it."""
        return value if self.dropout is None or not self.training else self.dropout(value)

    def watched(self, *names: str) -> bool:
        """Whether anybody looks at one of these sites, so that a fused operation must come apart."""
        if self._watchers is None:
            return False
        return any(watcher.here for name in names for watcher in self._watchers.get(name, ()))


class _Stop(Exception):  # noqa: N818 - a signal, not an error
    """Ends a forward pass once the last value that was asked for is there."""


_PLACING = threading.Lock()


class _Watcher:
    def __init__(self, name: str, seen: watching, keep: bool, stop: bool) -> None:
        self.name, self.seen, self.keep, self.stop = name, seen, keep, stop
        self.thread = threading.get_ident()

    @property
    def here(self) -> bool:
        """Whether this is the thread that watches; another's pass through the same model is not its business."""
        return self.thread == threading.get_ident()

    def __call__(self, value: Tensor) -> Tensor:
        if not self.here:
            return value
        if self.keep:
            value = self.seen._see(self.name, value)
        if self.stop:
            raise _Stop(self.seen)
        return value


def site_names(model: nn.Module) -> dict[str, tuple[Part, str]]:
    """Every site of a model, in module order: full name to the part and the site's own name."""
    return {
        f"{path}.{name}" if path else name: (part, name)
        for path, part in model.named_modules()
        if isinstance(part, Part)
        for name in part.sites
    }


class watching(Mapping[str, Tensor]):  # noqa: N801 - reads as a verb: with watching(model, ...) as seen
    """Watch sites of a model while the block runs, in this thread; afterwards the model is bitwise as before.

    ``patterns`` are site names, ``*`` for any part of one. ``seen[name]`` is a copy of the value last seen there.
    ``change(name, value)`` may return another value, which the forward pass goes on with. With ``gradients=True`` the
    values stay in the graph and ``seen.gradient(name)`` is what ``backward`` left there. ``stop_after`` ends the block,
    quietly, once that site was seen: nothing behind it is computed.

    Raises ``ValueError`` where a pattern matches no site, and where a changed value has another shape.
    """

    def __init__(
        self,
        model: nn.Module,
        *patterns: str,
        change: Change | None = None,
        gradients: bool = False,
        stop_after: str | None = None,
    ) -> None:
        if not patterns and stop_after is None:
            raise ValueError("watching needs the names of sites, as in 'decoder.layers.*.output'; '*' is all of them.")
        self._sites = site_names(model)
        self._names = {name for pattern in patterns for name in self._match(pattern)}
        self._stops = set(self._match(stop_after)) if stop_after else set[str]()
        self._change, self._gradients = change, gradients
        self._values: dict[str, Tensor] = {}
        self._placed: list[tuple[Part, str, _Watcher]] = []

    def _match(self, pattern: str) -> list[str]:
        names = fnmatch.filter(self._sites, pattern)
        if not names:
            near = difflib.get_close_matches(pattern, self._sites, n=1, cutoff=0.3)
            raise ValueError(f"no site is named {pattern!r}" + (f"; did you mean {near[0]!r}?" if near else "."))
        return names

    def _see(self, name: str, value: Tensor) -> Tensor:
        if self._change is not None:
            changed = self._change(name, value)
            if changed is not None and changed.shape != value.shape:
                was, now = tuple(value.shape), tuple(changed.shape)
                raise ValueError(f"{name}: the value there has shape {was}, and was changed to {now}.")
            value = value if changed is None else changed
        if self._gradients:
            value = value if value.requires_grad else value.detach().requires_grad_()
            value.retain_grad()
            self._values[name] = value
        else:
            self._values[name] = value.detach().clone()
        return value

    def __enter__(self) -> Self:
        if self._placed:
            raise ValueError("this watching is under way; make another for another block.")
        with _PLACING:
            for name in self._names | self._stops:
                part, own = self._sites[name]
                watcher = _Watcher(name, self, keep=name in self._names, stop=name in self._stops)
                watchers = part._watchers or {}
                part._watchers = {
                    **watchers,
                    own: [*watchers.get(own, ()), watcher],
                }  # a pass may be reading the old one
                self._placed.append((part, own, watcher))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        with _PLACING:
            for part, own, watcher in self._placed:
                watchers = part._watchers or {}
                left = {**watchers, own: [other for other in watchers[own] if other is not watcher]}
                part._watchers = {name: those for name, those in left.items() if those} or None
            self._placed.clear()
        return isinstance(error, _Stop) and error.args[0] is self

    def gradient(self, name: str) -> Tensor:
        """What ``backward`` left at a site that was watched with ``gradients=True``."""
        grad = self[name].grad
        if grad is None:
            raise ValueError(
                f"{name}: no gradient is there; watch with gradients=True and call backward inside the block."
            )
        return grad

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._values:
            raise KeyError(f"{name}: nothing was seen there; seen are {', '.join(self._values) or 'no values at all'}")
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
