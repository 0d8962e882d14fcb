"""open-instruct's `grpo_fast.py` with its learner and engine replaced: a script for our launcher.

All else is the real thing: options, datasets, Ray, queues, data preparation, training loop,
evaluation, metrics, and how it ends.
"""

import oi_without_gpu
from oi_worker import Prompts
from open_instruct import (
    data_loader,
    grpo_fast,
    grpo_fast_resource_plan,
    grpo_utils,
    utils,
    vllm_utils,
)
from open_instruct.dataset_transformation import TokenizerConfig
from open_instruct.environments.tools.utils import EnvsConfig
from open_instruct.model_utils import ModelConfig

if __name__ == "__main__":
    grpo_fast.ModelGroup = oi_without_gpu.Learners
    vllm_utils.create_vllm_engines = oi_without_gpu.make_engines
    utils.calculate_utilization_metrics = lambda **_: {}  # of GPUs
    grpo_fast_resource_plan.LEARNER_PLACEMENT_GROUP_CPU_PER_GPU = 1
    data_loader.HFDataLoader = Prompts  # built on OLMo-core's, which is not here
    configs = (
        grpo_utils.GRPOExperimentConfig,
        TokenizerConfig,
        ModelConfig,
        data_loader.StreamingDataLoaderConfig,
        data_loader.VLLMConfig,
        EnvsConfig,
    )
    parser = utils.ArgumentParserPlus(configs)
    parser.set_defaults(exp_name="grpo", warmup_ratio=0.0, max_grad_norm=1.0)
    grpo_fast.main(*parser.parse_args_into_dataclasses())
