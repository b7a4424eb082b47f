"""What the IPU backend takes as an option: names, Python types, bounds."""

from functools import lru_cache
from pathlib import Path

import yaml

from configs.errors import InputError

_TYPES = {"bool": bool, "int": int, "float": float, "str": str}
_EXAMPLES = {"bool": "True or False", "int": "a whole number", "float": "a number with a point",
             "str": "text"}
_WORDS = {"accl1_type": ("FLOAT", "FLOAT16"), "accl2_type": ("FLOAT", "FLOAT16"),
          "accl3_type": ("FLOAT", "FLOAT16"), "partials_type_matmuls": ("half", "float"),
          "weight_decay_mode": ("decay", "l2_regularization")}


@lru_cache(maxsize=None)
def facts():
    """The content of ``facts.yaml``."""
    return yaml.safe_load((Path(__file__).parent / "facts.yaml").read_text("utf-8"))


def check_option(name, value):
    """Refuse an option that the backend would refuse, or take for something else.

    Raises:
        InputError: naming the option and the mend.
    """
    known = facts()["options"]
    for kind, type_ in _TYPES.items():
        if name in known[kind]:
            # A bool is an int to Python, but not to the backend.
            if type(value) is not type_:
                _refuse(name, f"wants {kind}, not {value!r}", f"write {_EXAMPLES[kind]}")
            return _check_bounds(name, value)
    if name in known["enum"]:
        return _check_enum(name, value, known["enum"][name])
    checks = {"replicated_collectives_settings": _check_collectives,
              "accumulate_outer_fragment": _check_fragment, "custom_op": _check_custom_op,
              "dot_checks": _check_dots, "hardware_instrumentations": _check_instruments,
              "custom_codelets": _check_files, "compilation_progress_logger": _check_logger,
              **dict.fromkeys(known["location"], _check_location),
              **dict.fromkeys(known["texts_by_text"], _check_texts)}
    if name not in checks:
        names = [*checks, *known["enum"], *(name for kind in _TYPES for name in known[kind])]
        _refuse(name, "is no option of the backend", _nearest(name, names))
    checks[name](name, value)


def _check_bounds(name, value):
    if isinstance(value, int) and value < 0:
        _refuse(name, f"{value} is negative", "write 0 or more")
    if name == "available_memory_proportion" and not 0 <= value <= 1:
        _refuse(name, f"{value} is outside [0, 1]", "write e.g. 0.28, or 0.0 for the default")
    if name == "loss_scaling" and not value > 0:
        _refuse(name, f"{value} is not positive", "write e.g. 512.0")
    if value and value not in _WORDS.get(name, (value,)):
        _refuse(name, f"'{value}' is unknown", f"write {' or '.join(_WORDS[name])}")


def _check_enum(name, value, meanings):
    if type(value) is not int:
        _refuse(name, f"wants the number of a choice, not {value!r}", _numbered(meanings))
    if not 0 <= value < len(meanings):
        _refuse(name, f"{value} is out of range", _numbered(meanings))


def _check_location(name, value):
    keys = facts()["options"]["location_keys"]
    _check_dict(name, value, keys, int)
    for key in ("on_chip", "use_replicated_tensor_sharding"):
        if value.get(key, 0) not in (0, 1):
            _refuse(name, f"'{key}' is {value[key]}", "write 0 or 1")


def _check_collectives(name, value):
    _check_dict(name, value, facts()["options"]["collectives_keys"], bool)


def _check_fragment(name, value):
    if not isinstance(value, dict) or len(value) != 1:
        _refuse(name, f"wants one schedule with the IPUs that it leaves out, not {value!r}",
                "write e.g. {3: [0]}")
    (schedule, ipus), = value.items()
    if schedule not in (0, 1, 2, 3) or any(type(ipu) is not int for ipu in ipus):
        _refuse(name, f"{value!r} is out of range", "write a schedule of 0 to 3 and IPU numbers")


def _check_custom_op(name, value):
    wanted = {"paddle_op": str, "popart_op": str, "domain": str, "version": int}
    missing = [key for key in wanted if key not in value]
    if missing:
        _refuse(name, f"lacks '{missing[0]}'", f"give {', '.join(wanted)}")
    for key, type_ in wanted.items():
        _check_dict(name, {key: value[key]}, wanted, type_)


def _check_dots(name, value):
    known = facts()["options"]["dot_checks"]
    for item in value:
        if item not in known:
            _refuse(name, f"'{item}' is unknown", f"known are {', '.join(known)}")


def _check_instruments(name, value):
    if not isinstance(value, (list, set, tuple)) or any(item not in (0, 1) for item in value):
        _refuse(name, f"{value!r} is unknown", "write a list of 0 (outer) and 1 (inner)")


def _check_files(name, value):
    if not isinstance(value, (list, set, tuple)) or any(type(item) is not str for item in value):
        _refuse(name, f"wants file names, not {value!r}", "write a list of text")


def _check_logger(name, value):
    if not callable(value):
        _refuse(name, "cannot be called", "give a function of progress and total")


def _check_texts(name, value):
    _check_dict(name, value, None, str)


def _check_dict(name, value, keys, type_):
    if not isinstance(value, dict):
        _refuse(name, f"wants a dict, not {value!r}", "write {key: value}")
    for key, item in value.items():
        if keys is not None and key not in keys:
            _refuse(name, f"'{key}' is unknown", _nearest(str(key), list(keys)))
        if type(item) is not type_ or not isinstance(key, str):
            _refuse(name, f"'{key}' wants {type_.__name__}, not {item!r}",
                    f"write {_EXAMPLES.get(type_.__name__)}")


def _nearest(word, known):
    import difflib

    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known are e.g. {', '.join(known[:4])}"


def _numbered(meanings):
    return "write " + ", ".join(f"{number} ({word})" for number, word in enumerate(meanings))


def _refuse(name, problem, mend):
    raise InputError(f"IPU option {name}", problem, mend)
