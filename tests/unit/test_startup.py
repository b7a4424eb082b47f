"""What is set before Paddle starts."""

import pytest
from packaging.requirements import Requirement

from configs.errors import InputError
from engines import startup


@pytest.mark.parametrize("vendor, flags, path", [
    ("AuthenticAMD", "fpu avx2 avx512f", "7"), ("AuthenticAMD", "fpu avx2", "5"),
    ("AuthenticAMD", "fpu sse4_2", "automatic"), ("GenuineIntel", "avx2 avx512f", "automatic")])
def test_mkl_path_fits_the_processor(monkeypatch, vendor, flags, path):
    monkeypatch.delenv("MKL_DEBUG_CPU_TYPE", raising=False)
    monkeypatch.setattr(startup, "processor", lambda: (vendor, flags.split()))
    assert startup._choose_mkl_path() == path


def test_own_mkl_path_is_kept(monkeypatch):
    monkeypatch.setenv("MKL_DEBUG_CPU_TYPE", "4")
    assert startup._choose_mkl_path() == "4"


@pytest.mark.parametrize("requirement, problem", [
    ("numpy<1", "numpy 1.26.4 is installed, but <1 is needed"),
    ("no-such-package-anywhere>=1", "no-such-package-anywhere is not installed")])
def test_wrong_version_is_named_with_the_mend(requirement, problem):
    with pytest.raises(InputError, match="pip install -r requirements.lock") as error:
        startup._check_version(Requirement(requirement))
    assert problem in str(error.value)


@pytest.mark.parametrize("installed, problem", [
    ({"paddlepaddle": "3.3.1"}, None), ({"paddlepaddle-gpu": "3.3.1"}, None),
    ({"paddlepaddle-gpu": "2.6.2"}, "paddlepaddle-gpu 2.6.2 is installed, but ==3.3.1 is needed"),
    ({"paddlepaddle-ipu": "0.0.0.dev250"}, None), ({}, "paddlepaddle is not installed")])
def test_paddle_is_known_by_the_name_of_each_build(installed, problem, monkeypatch):
    def version(name):
        if name not in installed:
            raise startup.metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(startup.metadata, "version", version)
    if problem is None:
        startup._check_version(Requirement("paddlepaddle==3.3.1"))
        return
    with pytest.raises(InputError) as error:
        startup._check_version(Requirement("paddlepaddle==3.3.1"))
    assert problem in str(error.value)


def test_installed_versions_are_those_of_requirements():
    startup._check_versions(on_ipus=False)


def test_other_threads_need_another_process():
    with pytest.raises(InputError, match="run.threads: 12345 asked for"):
        startup.prepare(12345)
