#!/usr/bin/env bash
# Run the tests of the IPU Program, its contract and the emulated pod on Paddle 2.6.2 as well, the
# nearest version to the IPU builds (2.3 to 2.4) that can be installed from PyPI. It makes a
# virtual environment of its own, .venv-paddle-2.6 (Python 3.9 to 3.11; PYTHON chooses one).
# Usage: bash scripts/test_ipu_paddle_2.6.sh [PYTEST OPTION …]
set -euo pipefail
cd "$(dirname "$0")/.."
environment=.venv-paddle-2.6

if [ ! -x $environment/bin/python ]; then
    "${PYTHON:-python3}" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 11))' || {
        echo "error: PYTHON is not 3.9 to 3.11, which Paddle 2.6.2 needs; set it" >&2
        exit 2
    }
    "${PYTHON:-python3}" -m venv $environment
fi
# Paddle 2.6.2 names no upper bounds, but breaks with newer protobuf and without setuptools.
{
    echo 'paddlepaddle==2.6.2' 'protobuf==3.20.*' 'setuptools<81' | tr ' ' '\n'
    grep -v -E '^(paddle|#|$)' requirements.txt | sed 's/#.*//'
} > $environment/requirements.txt
if ! cmp -s $environment/requirements.txt $environment/installed; then
    echo "installing Paddle 2.6.2 into $environment" >&2
    $environment/bin/python -m pip install --quiet --disable-pip-version-check \
        -r $environment/requirements.txt
    cp $environment/requirements.txt $environment/installed
fi
$environment/bin/python -m pytest -q --confcutdir tests/ipu tests/ipu "$@"
