"""How entry points end when the machine refuses."""

import errno

import pytest

from configs.command_line import run
from configs.errors import InputError
from configs.files import write_whole


@pytest.mark.parametrize("number, text", [(errno.ENOSPC, "No space left"), (errno.EROFS, "Read-only")])
def test_a_full_disk_is_one_line(capsys, number, text):
    def main(argv):
        raise OSError(number, f"{text} …", "runs/x/file")

    assert run(main, []) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: runs/x/file: cannot be written") and error.count("\n") == 1


def test_other_errors_of_the_system_keep_their_traceback():
    def main(argv):
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError):
        run(main, [])


def test_a_file_is_replaced_whole(tmp_path):
    write_whole(tmp_path / "file", "one")
    write_whole(tmp_path / "file", "two…")
    assert (tmp_path / "file").read_text("utf-8") == "two…"
    with pytest.raises(InputError, match="nowhere/file: cannot be written"):
        write_whole(tmp_path / "nowhere" / "file", "one")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
