"""Lines of metrics: what people see of them, and the time that is left."""

import io

import pytest

from training.metrics import JsonLines, Progress, show_count, show_metrics, show_seconds

LINE = {"step": 120, "samples": 1920, "loss": 7.1234, "mlm_loss": 6.4321, "mlm_accuracy": 0.0912,
        "nsp_loss": 0.6913, "nsp_accuracy": 0.5469, "gradient_norm": 1.98765,
        "learning_rate": 3.125e-4, "sequences_per_second": 1234.4, "tokens_per_second": 102_345.0,
        "mfu": 0.409, "data_seconds": 0.02, "step_seconds": 1.0}


def test_a_line_of_pretraining():
    assert "  ".join(show_metrics(LINE)) == (
        "loss 7.12 (mlm 6.43 acc 0.0912, nsp 0.691 acc 0.547)  lr 0.00031  1,234 seq/s  "
        "102k tok/s  mfu 41%  data 2%  gradient norm 1.99")


def test_lines_of_other_tasks():
    held_out = {"step": 3, "loss": 7.5, "mlm_loss": 7.5, "mlm_accuracy": 0.125,
                "word_frequency_loss": 7.25}
    assert show_metrics(held_out) == ["loss 7.50 (mlm 7.50 acc 0.125)", "word frequency loss 7.25"]
    squad = {"step": 3, "exact_match": 81.234, "f1": 88.5, "skipped_steps": 0, "best": True,
             "bad_rows": 2}
    assert show_metrics(squad) == ["exact match 81.23", "f1 88.50", "best True",
                                   "bad rows 2"]
    assert show_metrics({"step": 3, "loss": 0.25, "accuracy": 0.875}) == ["loss 0.25 acc 0.875"]
    assert show_metrics({"step": 3, "loss": None}) == ["loss not finite"]
    assert show_metrics({"step": 3}) == []


def test_numbers_for_people():
    assert [show_count(value) for value in (0.5, 23.456, 1234.4, 12_345, 102_345, 3_400_000)] == [
        "0.5", "23.5", "1,234", "12.3k", "102k", "3.4M"]
    assert [show_seconds(value) for value in (0.4, 59.6, 125, 7_200, 11_520, 200_000)] == [
        "0 s", "1 min", "2 min 5 s", "2 h", "3 h 12 min", "2 d 7 h"]


class Clock:
    """Seconds that pass when told."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def run_steps(progress, clock, count, seconds):
    for _ in range(count):
        clock.now += seconds
        progress.advance()


def test_time_left_of_even_steps_is_exact():
    clock = Clock()
    progress = Progress(110, 10, clock=clock)
    for done in (1, 40):
        run_steps(progress, clock, done, 2.0)
    assert progress.seconds_left() == pytest.approx((110 - 51) * 2.0)


def test_time_left_follows_a_slower_machine():
    clock = Clock()
    progress = Progress(1000, 0, clock=clock)
    run_steps(progress, clock, 100, 1.0)
    run_steps(progress, clock, 1, 2.0)
    # A tenth of the weight on the newest step: 1.1 s.
    assert progress.seconds_left() == pytest.approx(899 * 1.1, rel=1e-4)
    run_steps(progress, clock, 100, 2.0)
    assert progress.seconds_left() == pytest.approx(799 * 2.0, rel=1e-4)


def test_time_left_counts_evaluations_apart_from_steps():
    clock = Clock()
    progress = Progress(400, 0, clock=clock)
    for _ in range(2):
        run_steps(progress, clock, 100, 1.0)
        with progress.aside():
            clock.now += 30.0
    for _ in range(50):
        run_steps(progress, clock, 1, 1.0)
        with progress.aside():  # nothing is due
            clock.now += 0.0001
    # 150 steps to go, of which each hundred brings 30 s.
    assert progress.seconds_left() == pytest.approx(150 * 1.3, rel=1e-3)


def test_a_line_ends_with_the_time_left(capsys):
    clock = Clock()
    progress = Progress(120, 0, clock=clock)
    run_steps(progress, clock, 60, 1.0)
    progress.say("step", {"step": 60, "loss": 7.5})
    run_steps(progress, clock, 60, 1.0)
    progress.say("held out", {"step": 120, "loss": 7.25})
    assert capsys.readouterr().out.splitlines() == [
        "step 60/120  loss 7.50  left 1 min", "held out 120/120  loss 7.25"]


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    clock, terminal = Clock(), io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", terminal)
    progress = Progress(120, 0, clock=clock)
    for _ in range(60):
        clock.now += 2.0
        progress.bar.last_print_t = 0  # have every step drawn
        progress.advance()
    progress.say("step", {"step": 60, "loss": 7.5})
    progress.close()
    last = terminal.getvalue().split("\r")[-1]
    assert "60/120" in last and "left 2 min" in last
    assert capsys.readouterr().out.strip() == "step 60/120  loss 7.50  left 2 min"


def test_a_process_that_prints_nothing(capsys):
    progress = Progress(10, 0, visible=False)
    progress.advance()
    progress.say("step", {"step": 1, "loss": 7.5})
    progress.close()
    assert capsys.readouterr() == ("", "")


def test_lines_after_a_resume_point_are_dropped(tmp_path):
    lines = JsonLines(tmp_path / "metrics.jsonl")
    for step in (1, 2, 3):
        lines.append({"step": step, "loss": 0.1 * step})
    with open(lines.path, "a") as stream:
        stream.write('{"step": 4, "lo')
    assert [line["step"] for line in lines.read()] == [1, 2, 3]
    lines.keep_up_to(2)
    lines.append({"step": 3, "loss": 0.5})
    assert [line["loss"] for line in lines.read()] == [0.1, 0.2, 0.5]
