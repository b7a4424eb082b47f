"""YAML files and ``--set`` into one checked ``Config``.

A file may name a parent with ``base:`` (a path relative to itself, or a list of them);
its own keys win. Every leaf remembers where it was written, so an error can say so.
"""

import dataclasses
import difflib
import math
import os
import re
import typing
from pathlib import Path

import yaml

from configs.errors import InputError
from configs.schema import SECTIONS, TASKS, Config

_LONGEST_FILE = 32_768  # bytes; a recipe is a page, and PyYAML is slow
_DEEPEST_BASE = 8
_LONGEST_SHOWN = 60
_YAML_TAG = "tag:yaml.org,2002:"

# Stricter than YAML 1.1, which takes 010 for 8, 1_000 for 1000 and 1e-4 for text.
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")


@dataclasses.dataclass(frozen=True)
class _Leaf:
    """A scalar or list as written, and the file or the ``--set`` that it was written in."""

    node: yaml.Node
    key_place: str
    path: Path = None
    override: str = None

    @property
    def place(self):
        return self.override or _place(self.path, self.node)


def load_config(path, overrides=(), also_check=None, task=None):
    """Read a YAML file with its bases, apply overrides, check everything.

    Args:
        path: the YAML file.
        overrides: strings ``section.key=value``, later ones win.
        also_check: called with the config; what it raises is told with file and line too.
        task: that the recipe must be for; None takes any.

    Raises:
        InputError: naming file, line and nearest key.
    """
    leaves = _read_leaves(path, overrides)
    sections = _sections_of(leaves)
    config = Config(**{name: _build_section(section, name, leaves, path)
                       for name, section in sections.items()})
    if task not in (None, config.data.task):
        raise InputError(path, f"is a recipe for {TASKS[config.data.task].ENTRY_POINT}",
                         f"choose one for {TASKS[task].ENTRY_POINT}")
    _check(config.check, leaves, path)
    if also_check:
        _check(lambda: also_check(config), leaves, path)
    return config


def load_section(name, path, overrides=()):
    """One checked section of a file that may lack the others, e.g. the model of configs/models/.

    Args:
        name: of the section.
        path, overrides: as in ``load_config``.
    """
    leaves = _read_leaves(path, overrides)
    section = _build_section(_sections_of(leaves)[name], name, leaves, path)
    _check(section.check, leaves, path)
    return section


def load_flat(kind, name, path=None, overrides=()):
    """A checked dataclass from a file without sections.

    Args:
        kind: the dataclass, each field with a default.
        name: that its keys have before them in errors.
        path: the YAML file; None is none.
        overrides: strings ``key=value``, later ones win.

    Raises:
        InputError: naming file, line and nearest key.
    """
    leaves = {}
    if path is not None:
        leaves = _section_leaves(name, _parse(_read_text(path, str(path)), path), path)
    for override in overrides:
        key, place, text = _split_override(override, "key=value")
        leaves[f"{name}.{key}"] = _Leaf(_override_node(text, place), place, override=place)
    _check_keys(leaves, {name: kind})
    section = _build_section(kind, name, leaves, path)
    _check(section.check, leaves, path or "--set")
    return section


def override_section(section, overrides, path):
    """A section with some values replaced by overrides, checked.

    Args:
        section: e.g. a ``ModelConfig``.
        overrides: strings ``section.key=value``.
        path: where the section is from, for errors.
    """
    sections = SECTIONS if type(section) in SECTIONS.values() else {
        **SECTIONS, "data": type(section)}
    name = next(name for name, kind in sections.items() if isinstance(section, kind))
    leaves = {}
    for override in overrides:
        leaves.update(_read_override(override))
    _check_keys(leaves, sections)
    hints = typing.get_type_hints(type(section))
    values = {key.partition(".")[2]: _convert(leaf, hints[key.partition(".")[2]], key)
              for key, leaf in leaves.items() if key.startswith(f"{name}.")}
    section = dataclasses.replace(section, **values)
    _check(section.check, leaves, path)
    return section


def _read_leaves(path, overrides):
    if path is None:
        raise InputError("--config", "no file was given",
                         "write e.g. --config configs/pretrain/quickstart.yaml")
    leaves = _read_file(Path(path), str(path))
    for override in overrides:
        leaves.update(_read_override(override))
    _check_keys(leaves, _sections_of(leaves))
    return leaves


def _sections_of(leaves):
    """The schema of each section; that of ``data`` goes by its task."""
    leaf = leaves.get("data.task")
    if leaf is None:
        return SECTIONS
    task = _scalar(leaf.node, str)
    if task not in TASKS:
        raise InputError(leaf.place, f"'data.task' wants {' or '.join(TASKS)}, not "
                         f"{_as_written(leaf.node)}", _nearest(str(task), TASKS))
    return {**SECTIONS, "data": TASKS[task]}


def _check_keys(leaves, sections):
    """Refuse a key that its section does not have."""
    for name, leaf in leaves.items():
        section, _, key = name.partition(".")
        if key not in _keys(sections[section]):
            raise InputError(leaf.key_place, f"unknown key '{section}.{_shorten(key)}'",
                             _nearest_key(key, section, sections))


def _check(check, leaves, path):
    """Call a check, and say where the value that it refuses stands."""
    try:
        check()
    except InputError as error:
        leaf = _find_leaf(leaves, error.place)
        place = f"{leaf.place}: {error.place}" if leaf else f"{path}: {error.place}"
        raise InputError(place, error.problem, error.mend) from None


def _find_leaf(leaves, place):
    """The leaf of ``section.key``, or of the item ``section.key[2]`` of a list."""
    key, _, index = place.partition("[")
    leaf = leaves.get(key)
    if leaf and index:
        leaf = dataclasses.replace(leaf, node=leaf.node.value[int(index[:-1])])
    return leaf


def to_yaml(config):
    """The resolved config as YAML text that ``load_config`` reads back."""
    sections = {name: dataclasses.asdict(getattr(config, name)) for name in SECTIONS}
    return yaml.safe_dump(sections, sort_keys=False, allow_unicode=True)


def describe_keys(task):
    """A line for every key of a task's recipes, for ``--help``."""
    lines = []
    for name, section in {**SECTIONS, "data": TASKS[task]}.items():
        hints = typing.get_type_hints(section)
        for field in dataclasses.fields(section):
            default = _default_of(field)
            shown = "required" if default is dataclasses.MISSING else f"default {_shown(default)}"
            lines.append(f"  {name}.{field.name} ({_type_name(hints[field.name])}, {shown})\n"
                         f"      {field.metadata['meaning']}")
    return "\n".join(lines)


def _read_file(path, place, children=()):
    """Leaves of a file and its bases, ``{"section.key": _Leaf}``, own keys winning.

    Args:
        path: the file.
        place: where it is asked for, to begin an error with.
        children: real paths of the files whose base it is.
    """
    text = _read_text(path, place)
    chain = (*children, os.path.realpath(path))
    if chain[-1] in children:
        names = " -> ".join(os.path.basename(name) for name in chain)
        raise InputError(place, f"goes round in a circle ({names})", "remove one base")
    if len(children) > _DEEPEST_BASE:
        raise InputError(place, f"is more than {_DEEPEST_BASE} bases deep", "remove some")
    leaves, own = {}, {}
    for key, value in _entries(_parse(text, path), path, "the file"):
        if key.value == "base":
            for base in _base_nodes(value, path):
                base_place = f"{_place(path, base)}: base '{_shorten(base.value)}'"
                leaves.update(_read_file(path.parent / base.value, base_place, chain))
        elif key.value in SECTIONS:
            own.update(_section_leaves(key.value, value, path))
        else:
            raise InputError(_place(path, key), f"unknown section '{_shorten(key.value)}'",
                             _nearest_section(key.value, "base"))
    leaves.update(own)
    return leaves


def _read_text(path, place):
    try:
        with open(path, "rb") as file:
            content = file.read(_LONGEST_FILE + 1)
    except FileNotFoundError:
        raise InputError(place, "no such file", _nearest_file(path)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", "no file can have this name")
        raise InputError(place, f"cannot be read ({reason})") from None
    if len(content) > _LONGEST_FILE:
        raise InputError(place, f"is longer than {_LONGEST_FILE} bytes", "is it a YAML recipe?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[:error.start].count(b"\n") + 1
        raise InputError(f"{path}:{line}", f"byte {error.object[error.start]:#04x} is not UTF-8",
                         "save the file as UTF-8") from None


def _parse(text, path):
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InputError(f"{path}:{line}", f"not YAML: character {error.character:#x} is not "
                         "allowed", "remove it") from None
    except yaml.MarkedYAMLError as error:
        raise InputError(*_syntax_error(error, text, path)) from None
    except (RecursionError, ValueError, OverflowError) as error:
        # PyYAML lets deep nesting, and e.g. "\UFFFFFFFF" on its way to chr(), fail in Python.
        what = "nested too deeply" if isinstance(error, RecursionError) else "a number too large"
        raise InputError(f"{path}:{loader.line + 1}", f"not YAML: {what}") from None
    if root is None:
        raise InputError(path, "the file is empty", "write the sections model, data, train, run")
    return root


def _syntax_error(error, text, path):
    """Place, problem and mend of what PyYAML complains about."""
    lines = text.splitlines()
    mark = error.problem_mark or error.context_mark
    number = min(mark.line + 1, len(lines))
    problem = f"not YAML: {error.problem or error.context}"
    start = error.context_mark
    if start and start.line + 1 < number:
        problem += f" ({error.context} that begins in line {start.line + 1})"
    mend = None
    if "\t" in re.match(r"\s*", lines[number - 1]).group():
        mend = "indent with spaces"
    elif "mapping values" in problem or "<block end>" in problem:
        mend = "check colon and indentation here and in the line before"
    return f"{path}:{number}", problem, mend


def _entries(node, path, what):
    """Key and value nodes of a mapping; refuses other nodes and duplicate keys."""
    if not isinstance(node, yaml.MappingNode) or node.tag != _YAML_TAG + "map":
        raise InputError(_place(path, node), f"{what} must hold 'key: value' lines",
                         "see configs/pretrain/quickstart.yaml")
    seen = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise InputError(_place(path, key), "a key must be a plain word")
        if key.value in seen:
            raise InputError(_place(path, key), f"'{_shorten(key.value)}' was already given in "
                             f"line {seen[key.value]}", "remove one of the two")
        seen[key.value] = key.start_mark.line + 1
    return node.value


def _base_nodes(node, path):
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    for item in nodes:
        if _scalar(item, str) is None:
            raise InputError(_place(path, item), "base: wants a file name or a list of them")
    return nodes


def _section_leaves(name, node, path):
    return {f"{name}.{key.value}": _Leaf(value, _place(path, key), path)
            for key, value in _entries(node, path, f"section '{name}'")}


def _read_override(override):
    key, place, text = _split_override(override, "section.key=value")
    section, _, name = key.partition(".")
    if section not in SECTIONS:
        raise InputError(place, f"unknown section '{_shorten(section)}'",
                         _nearest_section(section))
    return {f"{section}.{name}": _Leaf(_override_node(text, place), place, override=place)}


def _split_override(override, form):
    place = f"--set {_shorten(override)}"
    key, equals, text = override.partition("=")
    if not equals:
        raise InputError(place, "no '=' in it", f"write --set {form}")
    return key.strip(), place, text


def _override_node(text, place):
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError):
        node = None
    if node is None:
        raise InputError(place, f"'{_shorten(text)}' is no value", "write --set section.key=value")
    return node


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
    wanted = _type_name(hint)
    if typing.get_origin(hint) is typing.Union:
        if leaf.node.tag == _YAML_TAG + "null":
            return None
        hint = next(item for item in typing.get_args(hint) if item is not type(None))
    if typing.get_origin(hint) is list:
        if not isinstance(leaf.node, yaml.SequenceNode) or leaf.node.tag != _YAML_TAG + "seq":
            raise InputError(leaf.place, f"'{key}' wants a list", "write [first, second]")
        items = [dataclasses.replace(leaf, node=item) for item in leaf.node.value]
        return [_convert(item, typing.get_args(hint)[0], key) for item in items]
    value = _scalar(leaf.node, hint)
    if value is None:
        problem = f"'{key}' wants {wanted}, not {_as_written(leaf.node)}"
        raise InputError(leaf.place, problem, _mend_value(leaf.node, hint))
    return value


def _scalar(node, hint):
    """A scalar node as the type that is wanted; None where it is not of that type."""
    if not isinstance(node, yaml.ScalarNode) or not node.tag.startswith(_YAML_TAG):
        return None
    kind, text, quoted = node.tag[len(_YAML_TAG):], node.value, node.style in ("'", '"')
    if typing.get_origin(hint) is typing.Literal:
        # YAML 1.1 reads a bare `none` as a word but `null`, `on`, `off` as something else.
        return text if text in typing.get_args(hint) and kind == "str" else None
    if hint is bool:
        return {"true": True, "false": False}.get(text.lower()) if kind == "bool" else None
    if hint is int:
        return int(text) if kind == "int" and not quoted and _INT.fullmatch(text) else None
    if hint is float:
        # YAML 1.1 takes 1e-4 (no dot) for a string; a plain one is a number here.
        known = kind in ("int", "float", "str") and not quoted and _FLOAT.fullmatch(text)
        return float(text) if known and math.isfinite(float(text)) else None
    return text if kind == "str" and text.strip() else None


def _as_written(node):
    """A value as an error shows it, in its own quotes if it has some."""
    if not isinstance(node, yaml.ScalarNode):
        return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"
    quote = node.style if node.style in ("'", '"') else ""
    shown = f"{quote}{_shorten(node.value)}{quote}" or "nothing"
    return f"{shown} with the tag {_shorten(node.tag)}" if _has_foreign_tag(node) else shown


def _mend_value(node, hint):
    if not isinstance(node, yaml.ScalarNode):
        return "write one value"
    if _has_foreign_tag(node):
        return "remove the tag"
    if typing.get_origin(hint) is typing.Literal:
        return _nearest(node.value, typing.get_args(hint))
    if hint is str and node.value.strip():
        return "put it in quotes"
    return "remove the quotes" if node.style in ("'", '"') and hint is not str else None


def _has_foreign_tag(node):
    return not re.fullmatch(_YAML_TAG + "[a-z]+", node.tag)


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


def _keys(section):
    return [field.name for field in dataclasses.fields(section)]


def _place(path, node):
    return f"{path}:{node.start_mark.line + 1}"


def _shorten(text):
    """What is written in a file, fit for a terminal."""
    text = text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN - 1] + "…"
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _nearest(word, known, prefix=""):
    close = difflib.get_close_matches(word.lower(), known, n=1)
    return f"did you mean '{prefix}{close[0]}'?" if close else f"known are {', '.join(known)}"


def _nearest_section(word, *others):
    """The section that looks like the word, or the one that has a key of this name."""
    home = _home_of(word, SECTIONS)
    return f"write it under '{home}:'" if home else _nearest(word, [*others, *SECTIONS])


def _nearest_key(word, section, sections):
    """The key of the section that looks like the word, or the section it belongs to."""
    home = _home_of(word, sections)
    if home:
        return f"it belongs to '{home}'"
    return _nearest(word, _keys(sections[section]), f"{section}.")


def _home_of(key, sections):
    return next((name for name, section in sections.items() if key in _keys(section)), None)


def _nearest_file(path):
    siblings = path.parent.glob("*.yaml") if path.parent.is_dir() else []
    names = {sibling.stem: sibling for sibling in siblings}
    close = difflib.get_close_matches(path.stem, names, n=1)
    return f"did you mean {names[close[0]]}?" if close else None
