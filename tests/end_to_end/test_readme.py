"""Every command of the README and of docs/ipu.md runs, and the Chinese pages keep step."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from configs.inference_schema import InferenceConfig
from configs.schema import RunConfig

ROOT = Path(__file__).resolve().parents[2]
STEPS = 2
# Small enough for seconds; the commands are otherwise run as they are written.
NARROW = ["model.hidden_size=32", "model.num_attention_heads=2", "model.intermediate_size=64",
          f"train.steps={STEPS}", "train.warmup_steps=1", "train.evaluation_rows=8"]
SMALL = " ".join(f"--set {value}" for value in [
    *NARROW, "model.num_hidden_layers=1", "train.global_batch_size=4", "run.micro_batch_size=4"])
THREE_LAYERS = " ".join(f"--set {value}" for value in [
    *NARROW, "model.num_hidden_layers=3", "run.micro_batch_size=1"])
SMALL_ON_POD16 = f"{THREE_LAYERS} --set train.global_batch_size=36"
SMALL_ON_IPU_MODEL = f"{THREE_LAYERS} --set train.global_batch_size=9"


PAGES = [("README.md", "README.zh-CN.md"), ("docs/ipu.md", "docs/ipu.zh-CN.md")]


def commands(readme, kind="bash"):
    """Commands of the fenced blocks of a kind, each on one line."""
    blocks = re.findall(rf"```{kind}\n(.*?)```", (ROOT / readme).read_text("utf-8"), re.S)
    return [line for block in blocks
            for line in re.sub(r" \\\n\s*", " ", block).splitlines()]


def headings(readme):
    return [line.split(" ")[0] for line in (ROOT / readme).read_text("utf-8").splitlines()
            if re.match(r"#+ ", line)]


def tables(readme):
    return [line for line in (ROOT / readme).read_text("utf-8").splitlines()
            if line.startswith("|")]


@pytest.mark.parametrize("english, chinese", PAGES)
def test_chinese_pages_keep_step(english, chinese):
    for kind in ("bash", "console", "text"):
        assert commands(english, kind) == commands(chinese, kind)
    assert headings(english) == headings(chinese)
    assert [line.count("|") for line in tables(english)] == [
        line.count("|") for line in tables(chinese)]


@pytest.mark.parametrize("name", [name for pair in PAGES for name in pair])
def test_files_that_the_pages_name_exist(name):
    for path in re.findall(r"`((?:[a-z_]+/)+[\w.]*)`", (ROOT / name).read_text("utf-8")):
        assert (ROOT / path).exists() or path in ("checkpoints/", "corpora/squad/", "release/2.4"), path


@pytest.mark.parametrize("name", PAGES[1])
def test_the_ipu_page_tells_every_key_option_and_message(name):
    rows = [line.strip("| ").split(" | ") for line in tables(name)]
    told = {word for row in rows for word in re.findall(r"`(\w+)`", row[0])}
    assert {field.name for field in dataclasses.fields(RunConfig)} <= told
    assert {field.name for field in dataclasses.fields(InferenceConfig)
            if "ipu" in field.name} <= told
    options = yaml.safe_load((ROOT / "engines/ipu/facts.yaml").read_text("utf-8"))["options"]
    known = {*options["enum"], *options["location"], *options["location_keys"], *(
        option for kind in ("bool", "int", "float", "str") for option in options[kind])}
    row = {line[0].strip("`"): line[-1] for line in rows}
    for key in ("micro_batch_size", "stochastic_rounding", "prefetch_depth", "engine_cache",
                "batches_per_step", "loss_scale", "half_partials", "outline_threshold",
                "shard_optimizer", "optimizer_state_on_chip", "recompute", "replicas"):
        assert set(re.findall(r"`(\w+)`", row[key])) <= known, key
    # Messages of this project, whose literals Python joins.
    source = "".join(path.read_text("utf-8") for folder in ("configs", "engines")
                     for path in (ROOT / folder).rglob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"', "", source)
    messages = [line[0].strip("`") for line in rows]
    own = messages[messages.index("ipu asked for, but the installed Paddle was built without IPUs"):
                   messages.index("is no option of the backend") + 1]
    assert len(own) == 19
    for message in own:
        assert message in source, message


@pytest.fixture
def clone(tmp_path):
    """A copy of the project's files, with this environment as its .venv."""
    files = subprocess.run(["git", "ls-files", "-z", "--cached", "--others",
                            "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    for name in files.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file() and not name.startswith("tests/"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    return tmp_path


def shell(command, folder):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(["bash", "-euc", command], cwd=folder, env=environment, text=True,
                          capture_output=True)


def test_every_python_command_runs(clone):
    lines = [line for line in dict.fromkeys([*commands("README.md"), *commands("docs/ipu.md")])
             if line.startswith("python ")]
    assert len(lines) >= 19
    for line in lines:
        if "all-MiniLM-L6-v2" in line:  # needs real weights: tests/parity
            continue
        if line.startswith(("python run_", "python prepare_data.py --config")):
            line += " " + (SMALL_ON_POD16 if "pod16" in line else
                           SMALL_ON_IPU_MODEL if "ipu_model" in line else SMALL)
        line = re.sub(r"step_\d{8}", f"step_{STEPS:08d}", line)
        done = shell(line, clone)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert (clone / "converted/huggingface/model.safetensors").stat().st_size > 1_000_000


def test_every_launcher_runs(clone):
    lines = [line for line in commands("README.md") if "/pretrain.sh" in line]
    assert len(lines) == 4
    for line in lines:
        if "--print" in line:
            done = shell(line, clone)
            assert done.returncode == 0 and "run_pretrain.py --config" in done.stdout, done.stderr
    # The one that trains is run by test_launchers.py, with shorter rows.
    assert "bert_base_128_pod16.yaml --processes 4" in lines[3]


def test_every_launcher_of_the_ipu_page_shows_its_command():
    lines = [line for kind in ("bash", "console") for line in commands("docs/ipu.md", kind)
             if "bash scripts/" in line]
    assert len(lines) >= 9
    for line in lines:
        done = shell(line if "--print" in line else f"{line} --print", ROOT)
        assert done.returncode == 0, done.stderr
        config = re.search(r"--config (\S+)", done.stdout).group(1)
        assert (ROOT / config).is_file()
        assert ("paddle.distributed.launch" in done.stdout) == ("HOSTS=" in line)


@pytest.mark.parametrize("language, recipe", [("en", "quickstart"), ("zh", "quickstart_ernie_zh")])
def test_quickstart_script(tmp_path, language, recipe):
    # In the project itself, whose .venv it installs into when that is missing.
    data = f"--set data.directory={tmp_path / 'prepared'}"
    done = shell(f"RUNS={tmp_path} bash scripts/quickstart.sh {language} {SMALL} {data}", ROOT)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert (tmp_path / recipe / "result.json").is_file()
    assert (tmp_path / recipe / "curves.png").is_file()
    assert done.stdout.count("[MASK] ") >= 2


def test_quickstart_script_refuses_another_language():
    done = shell("bash scripts/quickstart.sh fr", ROOT)
    assert done.returncode == 2 and "usage" in done.stderr
