"""`python -m rollscope.adapters.open_instruct open_instruct/grpo_fast.py ...`"""

import sys

from rollscope.adapters.open_instruct import main

main(sys.argv[1:])
