#!/bin/sh
# The build steps of the application, outside the Dockerfile so that a test can run
# them in a plain folder. Run from the top of the source:
#
#   install.sh dependencies HOME    a Python environment with the locked packages
#   install.sh package HOME         mirror itself, compiled
# PYTHON is the Python to use; python3 by default. EXTRAS=kerberos adds what
# mirror[kerberos] needs, which takes gcc and the headers of Python and libkrb5.
set -eu

step=$1 home=$2
case "${EXTRAS:-}" in
"" | kerberos) ;;
*)
    echo "install.sh: EXTRAS is $EXTRAS; it can be kerberos" >&2
    exit 2
    ;;
esac

case "$step" in
dependencies)
    "${PYTHON:-python3}" -m venv "$home"
    # pip's cache may help: the stage of the image in which it grows is left behind.
    "$home/bin/pip" install --quiet --disable-pip-version-check --no-compile \
        --require-hashes -r requirements.runtime.lock
    if [ -n "${EXTRAS:-}" ]; then
        "$home/bin/pip" install --quiet --disable-pip-version-check --no-compile \
            --require-hashes -r "requirements.$EXTRAS.lock"
    fi
    "$home/bin/python" -m compileall -q -j 0 "$home/lib" >/dev/null || true
    ;;
package)
    wheels=$(mktemp -d)
    "$home/bin/pip" wheel --quiet --disable-pip-version-check --no-cache-dir \
        --no-deps --no-build-isolation --wheel-dir "$wheels" .
    "$home/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
        --no-deps --no-index "$wheels"/*.whl
    rm -r "$wheels"
    cp deploy/image/app.py deploy/image/healthy.py "$home"
    # For any CPU of this architecture, not just the one it was built on.
    NUMBA_CACHE_DIR="$home/kernels" NUMBA_CPU_NAME=generic "$home/bin/mirror" compile
    chmod -R go+rX "$home/kernels"
    ;;
*)
    echo "install.sh: unknown step $step" >&2
    exit 2
    ;;
esac
