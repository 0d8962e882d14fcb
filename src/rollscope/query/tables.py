"""Results as tables of other libraries, which are asked for by name when they are missing."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from .sql import Sql


class Result:
    """The rows that a statement gives: iterate them, or take them elsewhere."""

    def __init__(self, cursor: Any, sql: Sql) -> None:
        self._relation = cursor.sql(sql.text, params=sql.bound())
        self.columns: list[str] = list(self._relation.columns)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Every row as a tuple."""
        return list(self._relation.fetchall())

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`."""
        needed("to_arrow", "pyarrow")
        return self._relation.to_arrow_table()

    def to_polars(self) -> Any:
        """A `polars.DataFrame`."""
        needed("to_polars", "polars", "pyarrow")
        return self._relation.pl()

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`."""
        needed("to_pandas", "pandas", "numpy")
        return self._relation.df()


def needed(method: str, *packages: str) -> None:
    """Raise an `ImportError` that says what to type if a package is missing."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError:
            what = f"{method}() needs {package}: pip install {' '.join(packages)}"
            raise ImportError(what, name=package) from None
