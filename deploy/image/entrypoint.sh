#!/bin/sh
# The image's entry point. Spark's Kubernetes scheduler starts pods with the arguments
# `driver` and `executor`. Everything else goes to the command mirror.
set -eu

work=${APP_WORK:-/var/lib/mirror}

# Java needs a user name, which a user id chosen by the platform does not have.
if ! getent passwd "$(id -u)" >/dev/null 2>&1; then
    wrapper=$(ls /usr/lib/*/libnss_wrapper.so 2>/dev/null | head -n 1)
    if [ -z "$wrapper" ]; then
        echo "entrypoint: user id $(id -u) has no name, and libnss_wrapper is missing" >&2
        exit 1
    fi
    names=$(mktemp -d)
    echo "mirror:x:$(id -u):$(id -g):mirror:$work:/usr/sbin/nologin" >"$names/passwd"
    cp /etc/group "$names/group"
    export LD_PRELOAD="$wrapper" NSS_WRAPPER_PASSWD="$names/passwd" NSS_WRAPPER_GROUP="$names/group"
fi

# The compiled kernels: numba needs write access to their folder.
if [ ! -d "$NUMBA_CACHE_DIR" ]; then
    mkdir -p "$(dirname "$NUMBA_CACHE_DIR")"
    cp -R "$APP_HOME/kernels" "$NUMBA_CACHE_DIR"
fi

case "${1:-}" in
driver)
    shift
    exec tini -g -s -- "$SPARK_HOME/bin/spark-submit" \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
        --deploy-mode client "$@"
    ;;
executor)
    # Each option is a separate variable, since it may contain spaces.
    set --
    number=0
    while eval "[ -n \"\${SPARK_JAVA_OPT_$number+set}\" ]"; do
        eval "set -- \"\$@\" \"\$SPARK_JAVA_OPT_$number\""
        number=$((number + 1))
    done
    exec tini -g -s -- "$JAVA_HOME/bin/java" "$@" \
        "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CLASSPATH:-}${SPARK_CLASSPATH:+:}$SPARK_HOME/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec tini -s -- mirror "$@"
    ;;
esac
