"""HTTP over query and checks: the API, live updates, access control, and the viewer's page.

from rollscope import server

server.serve(store)                    # what `rollscope view` does
asgi = server.app(store)               # the application alone, for any ASGI server
"""

from .app import app
from .bundle import bundle
from .serve import serve

__all__ = ["app", "bundle", "serve"]
