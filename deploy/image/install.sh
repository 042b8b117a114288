#!/bin/sh
# The steps of the image's build that make the application, so that a test can take
# them in a plain folder as well. Run from the top of the source:
#
#   install.sh dependencies HOME    a Python environment with what the lock names
#   install.sh package HOME         mirror itself, and its kernels compiled
# PYTHON is the Python to take; python3 by default.
set -eu

step=$1 home=$2

case "$step" in
dependencies)
    "${PYTHON:-python3}" -m venv "$home"
    "$home/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
        --no-compile --require-hashes -r requirements.runtime.lock
    "$home/bin/python" -m compileall -q -j 0 "$home/lib" >/dev/null || true
    ;;
package)
    wheels=$(mktemp -d)
    "$home/bin/pip" wheel --quiet --disable-pip-version-check --no-cache-dir \
        --no-deps --no-build-isolation --wheel-dir "$wheels" .
    "$home/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
        --no-deps --no-index "$wheels"/mirror-*.whl
    rm -r "$wheels"
    cp deploy/image/app.py deploy/image/healthy.py "$home"
    # For any CPU of this architecture: who starts the image need not have the one it
    # was built on.
    NUMBA_CACHE_DIR="$home/kernels" NUMBA_CPU_NAME=generic \
        "$home/bin/python" -c 'import importlib, pkgutil, mirror.batches as batches
for module in pkgutil.iter_modules(batches.__path__, "mirror.batches."):
    importlib.import_module(module.name)'
    chmod -R go+rX "$home/kernels"
    ;;
*)
    echo "install.sh: unknown step $step" >&2
    exit 2
    ;;
esac
