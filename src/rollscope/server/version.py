"""Which Rollscope this is."""

import rollscope

VERSION: str = rollscope.__version__
