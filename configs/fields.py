"""What the sections of the schema are made of: fields with a meaning, and checks of values."""

import dataclasses

from configs.errors import InputError

REQUIRED = dataclasses.MISSING


def option(default, meaning):
    """A field with its docstring; ``REQUIRED`` as default makes the YAML state it.

    Required fields come first in their section, as dataclasses demand.
    """
    metadata = {"meaning": meaning}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def _numbers(section, keys):
    return [(key, getattr(section, key)) for key in keys if getattr(section, key) is not None]


def check_positive(section, name, *keys):
    for key, value in _numbers(section, keys):
        if not value > 0:
            raise InputError(f"{name}.{key}", f"{value} is not positive", "write more than 0")


def check_not_negative(section, name, *keys):
    for key, value in _numbers(section, keys):
        if not value >= 0:
            raise InputError(f"{name}.{key}", f"{value} is negative", "write 0 or more")


def check_share(section, name, *keys):
    for key, value in _numbers(section, keys):
        if not 0 <= value < 1:
            raise InputError(f"{name}.{key}", f"{value} is outside [0, 1)", "write a share")
