"""Two runs' losses side by side, in folders and in text files."""

import json

import pytest

from training import compare

LOSSES = [10.25, 9.5, 9.0]


def write_folder(folder, losses, first=1, **others):
    folder.mkdir()
    text = "".join(json.dumps({"step": step, "loss": loss, "mlm_loss": loss - 0.5, **others})
                   + "\n" for step, loss in enumerate(losses, first))
    (folder / "metrics.jsonl").write_text(text)
    return str(folder)


def write_text(file, losses):
    file.write_text("# a comment\n" + "".join(f"{step} {loss!r}\n"
                                              for step, loss in enumerate(losses, 1)))
    return str(file)


@pytest.fixture
def run_a(tmp_path):
    return write_folder(tmp_path / "a", LOSSES, mfu=0.25)


def test_equal_runs(run_a, tmp_path, capsys):
    run_b = write_folder(tmp_path / "b", LOSSES, mfu=0.75)
    assert compare.exit_code([run_a, run_b]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "compared: loss, mlm_loss of 3 steps", "every loss is equal in every bit",
        "within the tolerance of 0"]


def test_one_bit_apart(run_a, tmp_path, capsys):
    other = write_text(tmp_path / "b.txt", [10.25, 9.500000000000002, 9.25])
    assert compare.exit_code([run_a, other]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "compared: loss of 3 steps",
        "first difference: step 2, loss 9.5 and 9.500000000000002 (1.78e-15)",
        "largest difference: step 3, loss 9.0 and 9.25 (0.25)", "beyond the tolerance of 0"]
    assert compare.exit_code([run_a, other, "--tolerance", "0.25"]) == 0
    assert compare.exit_code([run_a, other, "--tolerance", "0.2"]) == 1


def test_a_loss_that_is_no_number(run_a, tmp_path, capsys):
    other = write_text(tmp_path / "b.txt", [10.25, float("nan"), 9.0])
    assert compare.exit_code([run_a, other, "--tolerance", "100"]) == 1
    assert "step 2, loss 9.5 and nan (inf)" in capsys.readouterr().out
    assert compare.exit_code([other, other]) == 0
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "metrics.jsonl").write_text('{"step": 2, "loss": null}\n')
    assert compare.exit_code([run_a, str(tmp_path / "c")]) == 1
    assert compare.exit_code([other, str(tmp_path / "c")]) == 0


def test_a_shorter_run_is_compared_as_far_as_it_goes(run_a, tmp_path, capsys):
    assert compare.exit_code([run_a, write_text(tmp_path / "b.txt", LOSSES[:2])]) == 0
    output = capsys.readouterr().out
    assert f"only in {run_a}: 1 steps, the first 3" in output and "loss of 2 steps" in output


@pytest.mark.parametrize("words, problem", [
    (["{a}", "{none}"], "none: is neither a run folder nor a file of losses"),
    (["{a}", "{words}"], "words.txt:2: is no step with its loss; write e.g. 1 10.25"),
    (["{a}", "{late}"], "has no step in common with"),
    (["{a}", "{a}", "--tolerance", "-1"], "--tolerance: -1.0 is no tolerance"),
    (["{a}", "{a}", "--tolerance", "nan"], "--tolerance: nan is no tolerance"),
    (["{a}"], "required: RUN_B")])
def test_bad_input(run_a, tmp_path, capsys, words, problem):
    (tmp_path / "words.txt").write_text("1 2.5\none 2\n")
    places = {"a": run_a, "none": str(tmp_path / "none"), "words": str(tmp_path / "words.txt"),
              "late": write_folder(tmp_path / "late", LOSSES, first=7)}
    assert compare.exit_code([word.format(**places) for word in words]) == 2
    error = capsys.readouterr().err
    assert problem in error and error.count("\n") == 1
