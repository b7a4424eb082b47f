"""The C++ operators: compiled by the command that the documents name, and computed."""

import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest

# In a process of its own: operators of a library stay registered.
COMPUTE = """
import sys
import numpy as np
from engines import startup
startup.prepare(on_ipus=True)
import paddle
from engines.ipu.custom_ops import load
from engines.ipu.program import legacy_static_mode

load(sys.argv[1])
given = np.arange(6, dtype=np.float32).reshape(2, 3)
with legacy_static_mode():
    x = paddle.static.data("x", [2, 3], "float32")
    x.stop_gradient = False
    block = paddle.static.default_main_program().global_block()

    def unchanged(kind):
        out = block.create_var(name=kind, shape=x.shape, dtype=x.dtype)
        block.append_op(type=kind, inputs={"X": [x]}, outputs={"Out": [out]})
        return out

    kept, cut = unchanged("checkpointoutput"), unchanged("detach")
    cut.stop_gradient = True
    loss = kept * kept + 5.0 * cut  # summed up: gradients are asked of each element
    gradient, = paddle.static.gradients([loss], x)
    found = paddle.static.Executor().run(feed={"x": given}, fetch_list=[kept, cut, gradient])
for array, right in zip(found, (given, given, 2 * given)):
    np.testing.assert_array_equal(array, right)
print("equal")
"""


@pytest.mark.skipif(not (find_spec("setuptools") and shutil.which("g++")),
                    reason="no C++ compiler, or no setuptools")
def test_operators_are_compiled_and_change_nothing(tmp_path):
    """The gradient of x * x + 5 x is 2 x where the second x lets none through."""
    built = subprocess.run([sys.executable, "-m", "engines.ipu.custom_ops", str(tmp_path)],
                           capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    library = built.stdout.splitlines()[-1].partition("write run.ipu_operators: ")[2]
    done = subprocess.run([sys.executable, "-c", COMPUTE, library], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["equal"], done.stderr


def test_a_missing_compiler_is_told(tmp_path, monkeypatch):
    from configs.errors import InputError
    from engines.ipu.custom_ops import build

    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(InputError, match="is not installed, but compiles the operators"):
        build(tmp_path / "operators")
    assert not (tmp_path / "operators").exists()
