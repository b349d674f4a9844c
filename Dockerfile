# One image for webhook, controller and certificates: `python -m webhook`, `python -m controller`, `python -m certs`; and for
# `python -m cli doctor`, which looks at the cluster from within.
# The base, Debian with this Python; pin it by --build-arg BASE=python@sha256:DIGEST.
ARG BASE=python:3.11-slim

FROM ${BASE} AS packages
# 1: no index is asked for packages; deploy/wheels has all of them, and they are held to the same hashes.
ARG PIP_NO_INDEX=0
COPY deploy/wheels /packages
COPY requirements.lock /packages/
RUN python -m venv --without-pip /venv \
 && python -m pip --disable-pip-version-check --python /venv/bin/python install --no-cache-dir --no-deps --require-hashes \
      --only-binary :all: --find-links /packages -r /packages/requirements.lock

FROM packages AS core
# auto: core is compiled by mypyc; if it cannot be, the image has it interpreted, and a line of the build says so. compiled: the
# build ends then. interpreted: nothing is compiled, and nothing is fetched from Debian.
ARG CORE=auto
ARG PIP_NO_INDEX=0
COPY core /app/core
COPY requirements-compile.lock /packages/
COPY scripts/building/compile_core.py /scripts/building/
# A base that has gcc, such as python:3.11, needs nothing from Debian.
RUN compile() { \
      ls "$(python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" \
      && { command -v gcc || { apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev; }; } \
      && python -m pip --disable-pip-version-check --python /venv/bin/python install --no-cache-dir --no-deps --require-hashes \
           --only-binary :all: --find-links /packages -r /packages/requirements-compile.lock \
      && /venv/bin/python /scripts/building/compile_core.py --in-place /app; \
    }; \
    case "$CORE" in \
      interpreted) ;; \
      compiled) compile ;; \
      auto) compile || echo "cardshare: core could not be compiled, see above; the image has it interpreted" ;; \
      *) echo "CORE=$CORE: write auto, compiled or interpreted" >&2; exit 2 ;; \
    esac

FROM ${BASE}
COPY --from=packages /venv /venv
COPY --from=core /app /app
COPY runtime /app/runtime
COPY kube /app/kube
COPY certs /app/certs
COPY cli /app/cli
COPY webhook /app/webhook
COPY controller /app/controller
# To bytecode here, because the root file system is read-only later; PYTHONSAFEPATH keeps a folder that happens to be the
# working directory from shadowing a package.
RUN /venv/bin/python -m compileall -q /app
# numpy's linear algebra, which nothing here uses, would start a thread for each processor of the node.
ENV PATH=/venv/bin:$PATH PYTHONPATH=/app PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1
WORKDIR /
USER 65532:65532
