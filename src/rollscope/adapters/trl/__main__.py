"""`python -m rollscope.adapters.trl trl grpo ...`"""

import sys

from rollscope.adapters._launch import main
from rollscope.adapters.trl.launching import install

main(sys.argv[1:], install, "python -m rollscope.adapters.trl trl grpo --model_name_or_path ...")
