"""The words of ``run.pipeline``: a stage's text to names of parts, and names back to words."""

import difflib
import re

from configs.errors import InputError
from models.cost import HALVES

REST = "-1"
_BLOCKS = ("embeddings", "pooler", "heads")
_LAYER_WORDS = "layer.N, layer.N-M, layer.N.attention, layer.N.feed_forward"
# Layer, last layer of a range, half.
_LAYER = re.compile(r"layer\.([0-9]{1,6})(?:-([0-9]{1,6}))?(?:\.(\w+))?")


class StageText:
    """A stage as the YAML has it: ``PART, PART on DEVICE``, with commas, blanks or both."""

    def __init__(self, number, text, names):
        """
        Args:
            number: of the stage, from 0.
            text: e.g. ``layer.0-3, layer.4.attention on 1``.
            names: of the network's parts, as ``models.cost.part_names`` gives them.

        Raises:
            InputError: what the text names is not in the network, or it names no device.
        """
        self.number, self.text = number, " ".join(text.split())
        parts, on, device = f" {self.text} ".rpartition(" on ")
        if not on or not device.strip():
            self.refuse("does not say on which device it sits", "write '… on 0'; in [ ] a stage "
                        "with commas needs quotes")
        self.ipu = self._read_device(device.strip())
        words = re.split(r" ?, ?| ", parts.strip())
        if words == [""]:
            self.refuse("names no part", f"write e.g. 'layer.0-3 on {self.ipu}'")
        self.takes_rest = REST in words
        if words.count(REST) > 1:
            self.refuse(f"says {REST} twice", "remove one")
        self.parts = [part for word in words if word != REST for part in self._read(word, names)]

    def __str__(self):
        return f"stage {self.number} ('{self.text}')"

    def refuse(self, problem, mend):
        """Raise the InputError of this stage."""
        raise InputError(f"run.pipeline[{self.number}]", f"{self} {problem}", mend)

    def _read_device(self, word):
        if re.fullmatch(r"-[0-9]+", word):
            self.refuse(f"sits on {word}, but devices count from 0", "write 0 or more")
        if not re.fullmatch(r"[0-9]{1,6}", word):
            self.refuse(f"sits on '{word}', which is no number", "write e.g. 'on 0'")
        return int(word)

    def _read(self, word, names):
        """The parts that one word stands for."""
        if word in _BLOCKS:
            if word not in names:
                self.refuse(f"names {word}, but this network has none", "remove it")
            return [word]
        match = _LAYER.fullmatch(word)
        if not match:
            self._refuse_unknown(word)
        first, last, half = int(match[1]), int(match[2] or match[1]), match[3]
        self._check_layers(word, first, last, half)
        if f"layer.{last}.{HALVES[0]}" not in names:
            count = sum(name.endswith(HALVES[0]) for name in names)
            self.refuse(f"names layer {last}, but the model has layers 0 to {count - 1}",
                        "name those, or change model.num_hidden_layers")
        return [f"layer.{number}.{name}" for number in range(first, last + 1)
                for name in ([half] if half else HALVES)]

    def _check_layers(self, word, first, last, half):
        if half and half not in HALVES:
            self.refuse(f"names '{word}', but the halves of a layer are {' and '.join(HALVES)}",
                        f"write layer.{first}.{_closest(half, HALVES) or HALVES[0]}")
        if first > last:
            self.refuse(f"counts backwards in '{word}'", f"write layer.{last}-{first}")
        if half and first != last:
            self.refuse(f"names one half of several layers in '{word}'",
                        "name each by itself; a stage holds neighbours only")

    def _refuse_unknown(self, word):
        if not word:
            self.refuse("has a comma with nothing beside it", "remove it")
        known = _LAYER_WORDS if "lay" in word.lower() else _closest(word, _BLOCKS)
        self.refuse(f"names '{word[:40]}', which is no part",
                    f"write {known or f'embeddings, {_LAYER_WORDS}, pooler, heads or {REST}'}")


def _closest(word, known):
    return next(iter(difflib.get_close_matches(word.lower(), known, n=1)), None)


def shorten(parts):
    """Part names for a reader: whole layers by their number, neighbours as a range.

    Args:
        parts: names in the network's order, e.g. both halves of layers 0 to 3.

    Returns:
        Text, e.g. ``layer.0-3``.
    """
    words = []
    for part in parts:
        block, _, half = part.rpartition(".")
        if half == HALVES[1] and words and words[-1] == f"{block}.{HALVES[0]}":
            words[-1] = block
        else:
            words.append(part)
        words[-2:] = _join(*words[-2:])
    return ", ".join(words)


def _join(before, after=None):
    if after is None:
        return [before]
    first, second = _LAYER.fullmatch(before), _LAYER.fullmatch(after)
    whole = first and second and not first[3] and not second[3]
    if whole and int(second[1]) == int(first[2] or first[1]) + 1:
        return [f"layer.{first[1]}-{second[1]}"]
    return [before, after]
