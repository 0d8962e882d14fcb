"""Writes docs/openapi.json from the server's own types: `make api`."""

import json
from pathlib import Path

from rollscope.server.openapi import describe
from rollscope.server.routes import ROUTES

target = Path(__file__).with_name("openapi.json")
target.write_text(json.dumps(describe(ROUTES), indent=1) + "\n")
