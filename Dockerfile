# mirror, with the Python, Java and Spark that it runs on. It downloads nothing when it
# runs. Layers that change least come first; the last but one contains mirror itself.
#
#   docker build -t mirror:0.1.0 .
#
# For builds that are reproducible but for the archive of Java's classes set DEBIAN with
# a digest (debian:bookworm-slim@sha256:...).
# Python packages are always locked with hashes.
ARG DEBIAN=docker.io/library/debian:bookworm-slim

FROM ${DEBIAN} AS system
# tini reaps zombies and forwards signals; libnss-wrapper gives any user id a name.
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        ca-certificates libgssapi-krb5-2 libnss-wrapper openjdk-17-jre-headless procps \
        python3 tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/debconf/*-old /var/log/apt /var/log/dpkg.log \
    && ln -s "$(dirname "$(dirname "$(readlink -f /usr/bin/java)")")" /opt/java

FROM system AS build
# `kerberos` adds what mirror[kerberos] needs.
ARG EXTRAS=
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3-venv \
        ${EXTRAS:+gcc libc6-dev libkrb5-dev python3-dev} \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY requirements.runtime.lock requirements.kerberos.lock ./
COPY deploy/image/install.sh deploy/image/
RUN EXTRAS=$EXTRAS deploy/image/install.sh dependencies /opt/mirror

FROM system AS source
COPY . /source
RUN cd /source && find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum >/source.sha256

FROM system
RUN groupadd --gid 185 mirror \
    && useradd --uid 185 --gid 0 --groups mirror --home-dir /var/lib/mirror --shell /usr/sbin/nologin mirror \
    && install -d -o 185 -g 0 -m 0775 /var/lib/mirror /etc/mirror
COPY --from=build /opt/mirror /opt/mirror
ENV PATH=/opt/mirror/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    JAVA_HOME=/opt/java \
    SPARK_HOME=/opt/mirror/lib/python3.11/site-packages/pyspark \
    PYSPARK_PYTHON=/opt/mirror/bin/python \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    APP_HOME=/opt/mirror \
    MIRROR_CONFIG=/etc/mirror/mirror.yaml \
    MIRROR_SERVICE__http_host=0.0.0.0 \
    MIRROR_SERVICE__state_dir=/var/lib/mirror/state \
    NUMBA_CACHE_DIR=/var/lib/mirror/kernels \
    NUMBA_CPU_NAME=generic \
    HOME=/var/lib/mirror
COPY deploy/image/entrypoint.sh /opt/entrypoint.sh
# buildah's cache does not look into what is mounted: without this file it would go on
# using the layer of an earlier mirror.
COPY --from=source /source.sha256 /opt/mirror/source.sha256
RUN --mount=type=bind,target=/source,rw cd /source && deploy/image/install.sh package /opt/mirror
USER 185:0
WORKDIR /var/lib/mirror
VOLUME ["/var/lib/mirror", "/tmp"]
EXPOSE 8083
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=6 \
    CMD ["python", "/opt/mirror/healthy.py"]
ENTRYPOINT ["/opt/entrypoint.sh"]
CMD ["run"]
LABEL org.opencontainers.image.title="mirror" \
    org.opencontainers.image.description="Copies topics between Kafka clusters, continuously and exactly once." \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="0.1.0"
