"""Results as tables of other libraries. If a library is missing, the error names it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from .sql import Sql

if TYPE_CHECKING:
    from rollscope.store.read.reader import Reader

T = TypeVar("T")


class Result:
    """The rows that a statement gives: iterate them, or take them elsewhere.

    Each use reads them anew, and once more over the new files if one went away.
    """

    def __init__(
        self, reader: Reader, sql: Sql, begin: Callable[[Any], None] = lambda cursor: None
    ) -> None:
        """`begin` is called with each new connection before the statement runs on it."""
        self._reader = reader
        self._sql = sql
        self._begin = begin
        self.columns: list[str] = self._taken(lambda relation: list(relation.columns))

    def __repr__(self) -> str:
        return f"Result({', '.join(self.columns)})"

    def _taken(self, how: Callable[[Any], T]) -> T:
        def work(_: Any) -> T:
            cursor = self._reader.cursor()
            try:
                self._begin(cursor)
                return how(cursor.sql(self._sql.text, params=self._sql.bound()))
            finally:
                cursor.close()

        return self._reader.reading(work)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Every row as a tuple."""
        return self._taken(lambda relation: list(relation.fetchall()))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`."""
        needed("to_arrow", "pyarrow")
        return self._taken(lambda relation: relation.to_arrow_table())

    def to_polars(self) -> Any:
        """A `polars.DataFrame`."""
        needed("to_polars", "polars", "pyarrow")
        return self._taken(lambda relation: relation.pl())

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`."""
        needed("to_pandas", "pandas", "numpy")
        return self._taken(lambda relation: relation.df())


def needed(method: str, *packages: str) -> None:
    """Raise an `ImportError` that says what to type if a package is missing."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError:
            what = f"{method}() needs {package}: pip install {' '.join(packages)}"
            raise ImportError(what, name=package) from None
