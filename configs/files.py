"""Small files that are written whole or not at all."""

import json
import os
from pathlib import Path

from configs.errors import InputError


def write_whole(path, content):
    """Replace a file; a kill or a full disk in between leaves the old one.

    Args:
        path: the file.
        content: text, written as UTF-8, or bytes.

    Raises:
        InputError: the disk is full or read-only.
    """
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise InputError(path, f"cannot be written ({error.strerror})",
                         "make room or choose another folder") from None


def write_json(path, value):
    """As ``write_whole``, a value as indented JSON."""
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
