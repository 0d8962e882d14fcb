"""Pieces of SQL that carry their parameters with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from rollscope.model.normalise import text


class Sql(NamedTuple):
    """SQL with a `?` for each parameter, in their order."""

    text: str
    params: tuple[Any, ...] = ()

    def fill(self, *pieces: Sql) -> Sql:
        """Put pieces into the `{}`s, and their parameters where they then stand."""
        parts = self.text.split("{}")
        assert len(parts) == len(pieces) + 1, self.text
        own = iter(self.params)
        filled, params = parts[0], [next(own) for _ in range(parts[0].count("?"))]
        for piece, part in zip(pieces, parts[1:], strict=True):
            filled += piece.text + part
            params += piece.params
            params += [next(own) for _ in range(part.count("?"))]
        return Sql(filled, tuple(params))

    def bound(self) -> list[Any]:
        """The parameters as the engine takes them. A lone surrogate becomes U+FFFD, as in
        `model.normalise`; no stored text holds one."""
        return [text(param) if isinstance(param, str) else param for param in self.params]

    @staticmethod
    def join(between: str, pieces: Iterable[Sql]) -> Sql:
        pieces = list(pieces)
        params = tuple(param for piece in pieces for param in piece.params)
        return Sql(between.join(piece.text for piece in pieces), params)


TRUE = Sql("TRUE")
FALSE = Sql("FALSE")


def all_of(pieces: Iterable[Sql]) -> Sql:
    return _joined(" AND ", [piece for piece in pieces if piece != TRUE]) or TRUE


def any_of(pieces: Iterable[Sql]) -> Sql:
    return _joined(" OR ", list(pieces)) or FALSE


def _joined(between: str, pieces: list[Sql]) -> Sql | None:
    if len(pieces) <= 1:
        return pieces[0] if pieces else None
    return Sql.join(between, (Sql(f"({piece.text})", piece.params) for piece in pieces))
