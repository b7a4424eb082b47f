# Sourced by the other scripts: go to the project's root, make .venv when it is missing or
# the lock has changed since, and put its python first.
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.12 python3.11 python3.10 python3.9; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 12))' \
            2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "error: no Python 3.9 to 3.12 found; install one or set PYTHON" >&2
    return 2
}

# install FILE [PIP OPTION …]: install a requirements file into .venv, once for each content.
install() {
    local file=$1 stamp=.venv/installed-$1
    shift
    if ! cmp -s "$file" "$stamp"; then
        echo "installing $file" >&2
        .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@" -r "$file"
        cp "$file" "$stamp"
    fi
}

if [ ! -x .venv/bin/python ]; then
    python=$(find_python)
    echo "making .venv with $("$python" --version)" >&2
    "$python" -m venv .venv
fi
# The lock names every package, so there is nothing to resolve.
install requirements.lock --no-deps
PATH=$PWD/.venv/bin:$PATH
