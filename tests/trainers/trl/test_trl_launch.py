"""Programs that the user does not own, with our launcher in front."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from stored import Stored
from world import TOK, VERSION, model, rows, since


def launch(*command: object, store: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "rollscope.adapters.trl", *map(str, command)],
        env=os.environ | {"ROLLSCOPE_DIR": str(store), "ACCELERATE_USE_CPU": "true"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert said.returncode == 0, said.stderr[-3000:]


def options(tmp_path: Path) -> list[object]:
    model().save_pretrained(tmp_path / "model")
    known = tmp_path / "model" / "config.json"
    known.write_text(known.read_text().replace('"Model"', '"Qwen2ForCausalLM"'))
    TOK.save_pretrained(tmp_path / "model")
    (tmp_path / "data").mkdir()
    rows().to_parquet(tmp_path / "data" / "train.parquet")
    return [
        "--model_name_or_path", tmp_path / "model", "--dataset_name", tmp_path / "data",
        "--reward_funcs", "think_format_reward", "--output_dir", tmp_path / "my-run",
        "--per_device_train_batch_size", 4, "--num_generations", 4, "--max_steps", 2,
        "--max_completion_length", 6, "--report_to", "none", "--use_cpu", "true",
        "--save_strategy", "no", "--attn_implementation", "eager", "--dtype", "float32",
    ]  # fmt: skip


@since("1.0", "this command")
def test_the_command_of_trl(own_store: Path, tmp_path: Path) -> None:
    """It goes through `accelerate launch`, which starts the script in another process."""
    launch("trl", "grpo", *options(tmp_path), store=own_store)
    stored = Stored(own_store)
    assert stored.projects == {("trl", "my-run")} and stored.orphans == []
    assert Counter((r.step, r.fate) for r in stored) == {(1, "trained"): 4, (2, "trained"): 4}


def test_a_script(own_store: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from world import Rewards, trainer\n"
        "assert __name__ == '__main__' and sys.argv[1:] == ['--steps', '1'], sys.argv\n"
        f"trainer(Path({str(tmp_path)!r}), Rewards(), max_steps=1).train()\n"
    )
    launch("python", script, "--steps", 1, store=own_store)
    assert Counter(r.fate for r in Stored(own_store)) == {"trained": 4}


@pytest.mark.skipif(VERSION < (1, 0), reason="once is enough")
@pytest.mark.parametrize("words", [[], ["nothing.py"], ["ls"], ["-m"]])
def test_what_is_no_program_is_told(words: list[str]) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "rollscope.adapters.trl", *words],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert said.returncode == 1 and "Which program? For example:\n  python -m" in said.stderr
