"""What a person sees when a query cannot be understood."""

from __future__ import annotations


class QueryError(ValueError):
    """A query that cannot be understood: what is wrong, where, and what to type instead.

    `start` and `end` are the characters of `query` that are wrong; `nearest` are known words
    that may have been meant.
    """

    def __init__(
        self, what: str, query: str, start: int, end: int, nearest: tuple[str, ...] = ()
    ) -> None:
        self.what = what
        self.query = query
        self.start = min(start, len(query))
        self.end = min(max(end, start + 1), max(len(query), start + 1))
        self.nearest = nearest
        super().__init__(str(self))

    def __str__(self) -> str:
        hint = f"; did you mean {' or '.join(self.nearest)}?" if self.nearest else ""
        line_start = self.query.rfind("\n", 0, self.start) + 1
        line = self.query[line_start:].partition("\n")[0]
        marks = " " * (self.start - line_start) + "^" * max(1, min(self.end, 10**6) - self.start)
        return f"{self.what} (character {self.start + 1}){hint}\n  {line}\n  {marks}"


class NotFound(KeyError):
    """No rollout has this id, or more than one begins so."""

    def __str__(self) -> str:
        return str(self.args[0])
