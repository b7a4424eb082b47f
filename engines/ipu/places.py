"""Which block and operator of a Program an error is about."""

import re

from configs.errors import InputError


def place(operator):
    """E.g. ``layer.1.attention, operator gather``."""
    names = operator.attr("op_namescope") if operator.has_attr("op_namescope") else "/"
    block = re.sub(r"_\d+$", "", names.strip("/"))
    return f"{block or 'outside the blocks'}, operator {operator.type}"


def refuse(operator, problem, mend):
    """Raise an InputError about an operator."""
    raise InputError(place(operator), problem, mend)
