"""YAML files and ``--set`` into one checked ``Config``.

A file may name a parent with ``base:`` (a path relative to itself, or a list of them);
its own keys win. Every leaf remembers where it was written, so an error can say so.
"""

import dataclasses
import difflib
import re
import typing
from pathlib import Path

import yaml

from configs.errors import InputError
from configs.schema import SECTIONS, Config

_FLOAT = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")


@dataclasses.dataclass(frozen=True)
class _Leaf:
    """A scalar or list as written, and the place it was written at."""

    node: yaml.Node
    place: str


def load_config(path, overrides=()):
    """Read a YAML file with its bases, apply overrides, check everything.

    Args:
        path: the YAML file.
        overrides: strings ``section.key=value``, later ones win.

    Raises:
        InputError: naming file, line and nearest key.
    """
    leaves = _read_file(Path(path), ())
    for override in overrides:
        leaves.update(_read_override(override))
    sections = {}
    for name, section in SECTIONS.items():
        sections[name] = _build_section(section, name, leaves, path)
    config = Config(**sections)
    try:
        config.check()
    except InputError as error:
        leaf = leaves.get(error.place)
        place = f"{leaf.place}: {error.place}" if leaf else f"{path}: {error.place}"
        raise InputError(place, error.problem, error.mend) from None
    return config


def to_yaml(config):
    """The resolved config as YAML text that ``load_config`` reads back."""
    sections = {name: dataclasses.asdict(getattr(config, name)) for name in SECTIONS}
    return yaml.safe_dump(sections, sort_keys=False, allow_unicode=True)


def describe_keys():
    """A line for every key, for ``--help``."""
    lines = []
    for name, section in SECTIONS.items():
        hints = typing.get_type_hints(section)
        for field in dataclasses.fields(section):
            default = _default_of(field)
            shown = "required" if default is dataclasses.MISSING else f"default {_shown(default)}"
            lines.append(f"  {name}.{field.name} ({_type_name(hints[field.name])}, {shown})\n"
                         f"      {field.metadata['meaning']}")
    return "\n".join(lines)


def _read_file(path, children):
    """Leaves of a file and its bases, ``{"section.key": _Leaf}``, own keys winning."""
    resolved = path.resolve()
    if resolved in children:
        chain = " -> ".join(p.name for p in (*children, resolved))
        raise InputError(path, f"base: goes round in a circle ({chain})", "remove one base")
    root = _parse(path)
    leaves = {}
    own = {}
    for key, value in _entries(root, path, "the file"):
        place = _place(path, key)
        if key.value == "base":
            for base in _base_paths(value, path):
                leaves.update(_read_file(path.parent / base, (*children, resolved)))
        elif key.value in SECTIONS:
            own.update(_section_leaves(key.value, value, path))
        else:
            raise InputError(place, f"unknown section '{key.value}'",
                             _nearest(key.value, ["base", *SECTIONS]))
    leaves.update(own)
    return leaves


def _parse(path):
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(path, "no such file", _nearest_file(path)) from None
    except OSError as error:
        raise InputError(path, f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise InputError(f"{path}:{line}", f"byte {error.start} is not UTF-8",
                         "save the file as UTF-8") from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        mend = "indent with spaces" if "\\t" in str(error.problem) else None
        raise InputError(f"{path}:{mark.line + 1}", f"not YAML: {error.problem}", mend) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(path, f"not YAML: {error}") from None
    if root is None:
        raise InputError(path, "the file is empty", "write the sections model, data, train, run")
    return root


def _entries(node, path, what):
    """Key and value nodes of a mapping; refuses other nodes and duplicate keys."""
    if not isinstance(node, yaml.MappingNode):
        raise InputError(_place(path, node), f"{what} must hold 'key: value' lines",
                         "see configs/pretrain/quickstart.yaml")
    seen = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise InputError(_place(path, key), "a key must be a plain word")
        if key.value in seen:
            raise InputError(_place(path, key), f"'{key.value}' was already given in line "
                             f"{seen[key.value]}", "remove one of the two")
        seen[key.value] = key.start_mark.line + 1
        yield key, value


def _base_paths(node, path):
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    for item in nodes:
        if not isinstance(item, yaml.ScalarNode) or item.tag != "tag:yaml.org,2002:str":
            raise InputError(_place(path, item), "base: wants a file name or a list of them")
    return [item.value for item in nodes]


def _section_leaves(name, node, path):
    keys = [field.name for field in dataclasses.fields(SECTIONS[name])]
    leaves = {}
    for key, value in _entries(node, path, f"section '{name}'"):
        if key.value not in keys:
            raise InputError(_place(path, key), f"unknown key '{name}.{key.value}'",
                             _nearest(key.value, keys, name))
        leaves[f"{name}.{key.value}"] = _Leaf(value, _place(path, value))
    return leaves


def _read_override(override):
    place = f"--set {override}"
    key, equals, text = override.partition("=")
    if not equals:
        raise InputError(place, "no '=' in it", "write --set section.key=value")
    section, _, name = key.strip().partition(".")
    if section not in SECTIONS:
        raise InputError(place, f"unknown section '{section}'", _nearest(section, SECTIONS))
    names = [field.name for field in dataclasses.fields(SECTIONS[section])]
    if name not in names:
        raise InputError(place, f"unknown key '{section}.{name}'", _nearest(name, names, section))
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        node = None
    if node is None:
        raise InputError(place, f"'{text}' is no value", "write --set section.key=value")
    return {f"{section}.{name}": _Leaf(node, place)}


def _build_section(section, name, leaves, path):
    hints = typing.get_type_hints(section)
    values = {}
    for field in dataclasses.fields(section):
        key = f"{name}.{field.name}"
        if key in leaves:
            values[field.name] = _convert(leaves[key], hints[field.name], key)
        elif _default_of(field) is dataclasses.MISSING:
            raise InputError(path, f"'{key}' is missing", f"add it: {field.metadata['meaning']}")
    return section(**values)


def _convert(leaf, hint, key):
    """A YAML node as a value of the field's type, or InputError."""
    options = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Union:
        if leaf.node.tag == "tag:yaml.org,2002:null":
            return None
        hint = next(item for item in options if item is not type(None))
        options = typing.get_args(hint)
    if typing.get_origin(hint) is list:
        if not isinstance(leaf.node, yaml.SequenceNode):
            raise InputError(leaf.place, f"'{key}' wants a list", "write [first, second]")
        return [_convert(_Leaf(item, leaf.place), options[0], key) for item in leaf.node.value]
    if isinstance(leaf.node, yaml.ScalarNode):
        value = _scalar(leaf.node, hint)
        if value is not None:
            return value
    shown = leaf.node.value if isinstance(leaf.node, yaml.ScalarNode) else "a list or mapping"
    mend = _nearest(str(shown), options) if options else None
    raise InputError(leaf.place, f"'{key}' wants {_type_name(hint)}, not '{shown}'", mend)


def _scalar(node, hint):
    kind, text, quoted = node.tag.rpartition(":")[2], node.value, node.style in ("'", '"')
    if typing.get_origin(hint) is typing.Literal:
        # YAML 1.1 reads a bare `none` as a word but `null`, `on`, `off` as something else.
        return text if text in typing.get_args(hint) and kind == "str" else None
    if hint is bool:
        return {"true": True, "false": False}.get(text.lower()) if kind == "bool" else None
    if hint is int:
        return int(text) if kind == "int" and re.fullmatch(r"[-+]?\d+", text) else None
    if hint is float:
        # YAML 1.1 takes 1e-4 (no dot) for a string; a plain one is a number here.
        return float(text) if _FLOAT.fullmatch(text) and not quoted else None
    return text if kind == "str" else None


def _default_of(field):
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _type_name(hint):
    options = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Union:
        inner = next(item for item in options if item is not type(None))
        return f"{_type_name(inner)} or null"
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(options)
    if typing.get_origin(hint) is list:
        return f"a list of {_type_name(options[0])}"
    return {int: "an integer", float: "a number", bool: "true or false", str: "text"}[hint]


def _shown(value):
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else value


def _place(path, node):
    return f"{path}:{node.start_mark.line + 1}"


def _nearest(word, known, section=None):
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    if close:
        return f"did you mean '{section + '.' if section else ''}{close[0]}'?"
    return f"known are {', '.join(known)}"


def _nearest_file(path):
    siblings = [p.name for p in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, siblings, n=1)
    return f"did you mean {path.parent / close[0]}?" if close else None
