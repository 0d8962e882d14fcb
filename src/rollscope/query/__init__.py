"""One query language, compiled to the engine, and the Python read API. See README.md."""

from .compile import Query, compile_query
from .errors import NotFound, QueryError
from .guarded import SqlRefused
from .results import Result
from .rows import Row
from .selection import Counts, Page, Selection
from .store import Store, open

__all__ = [
    "Counts",
    "NotFound",
    "Page",
    "Query",
    "QueryError",
    "Result",
    "Row",
    "Selection",
    "SqlRefused",
    "Store",
    "compile_query",
    "open",
]
