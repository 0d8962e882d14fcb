"""`python -m rollscope.adapters.tinker -m tinker_cookbook.recipes.rl_basic ...`"""

import sys

from rollscope.adapters._launch import main
from rollscope.adapters.tinker.launching import install

main(
    sys.argv[1:],
    install,
    "python -m rollscope.adapters.tinker -m tinker_cookbook.recipes.rl_basic ...",
)
