"""`python -m rollscope`: the same as the command `rollscope`."""

import sys

from .cli import main

sys.exit(main())
