#!/bin/sh
# Runs mirror with spark-submit in client mode. spark-submit replaces this process, so
# signals reach the driver: on SIGTERM it finishes its transactions and exits.
#
#   mirror-submit.sh -c /etc/mirror/mirror.yaml [further options of `mirror run`]
#   mirror-submit.sh verify -c /etc/mirror/mirror.yaml [further options of it]
#
# Variables (all but the first have a default):
#   SPARK_MASTER      spark://host:7077, yarn, k8s://...
#   APP_HOME           the Python environment with mirror: /opt/mirror
#   APP_ARCHIVE        a packed environment (mirror-pack.sh), for executors that have
#                      none. Empty: executors have one at APP_HOME as well
#   SPARK_PROPERTIES   a file of Spark's settings, such as spark.authenticate.secret, for
#                      mirror's user alone. Empty: Spark's own spark-defaults.conf
#   SUBMIT_OPTIONS     further options for spark-submit, split at spaces
set -eu

: "${SPARK_MASTER:?say where Spark is, such as SPARK_MASTER=spark://spark.example.com:7077}"
home=${APP_HOME:-/opt/mirror}

if [ ! -x "$home/bin/spark-submit" ]; then
    echo "mirror-submit: APP_HOME: there is no $home/bin/spark-submit" >&2
    exit 2
fi
program=$("$home/bin/python" -c 'import mirror.__main__ as program; print(program.__file__)')

case ${1:-} in
    verify) set -- "$program" "$@" ;;
    *) set -- "$program" run "$@" ;;
esac
if [ -n "${APP_ARCHIVE:-}" ]; then
    # Executors unpack it in their working folder; the driver uses its own environment.
    PYSPARK_PYTHON=./mirror-env/bin/python
    PYSPARK_DRIVER_PYTHON=$home/bin/python
    export PYSPARK_DRIVER_PYTHON
    set -- --archives "$APP_ARCHIVE#mirror-env" "$@"
else
    PYSPARK_PYTHON=$home/bin/python
fi
export PYSPARK_PYTHON
if [ -n "${SPARK_PROPERTIES:-}" ]; then
    set -- --properties-file "$SPARK_PROPERTIES" "$@"
fi
# shellcheck disable=SC2086  # several options are several words
exec "$home/bin/spark-submit" --master "$SPARK_MASTER" --deploy-mode client \
    --driver-memory 512m --conf spark.executor.memory=512m ${SUBMIT_OPTIONS:-} "$@"
