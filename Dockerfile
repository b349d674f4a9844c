# One image for webhook, controller and certificate Job: `python -m webhook`, `python -m controller`, `python -m certs`.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS packages
COPY requirements.lock /
RUN python -m venv --without-pip /venv \
 && python -m pip --disable-pip-version-check --python /venv/bin/python install --no-cache-dir --require-hashes \
      --only-binary :all: -r /requirements.lock

FROM python:${PYTHON}-slim
COPY --from=packages /venv /venv
COPY core /app/core
COPY runtime /app/runtime
COPY kube /app/kube
COPY certs /app/certs
COPY webhook /app/webhook
COPY controller /app/controller
# Compiled here, because the root file system is read-only later; PYTHONSAFEPATH keeps a folder that happens to be the
# working directory from shadowing a package.
RUN /venv/bin/python -m compileall -q /app
ENV PATH=/venv/bin:$PATH PYTHONPATH=/app PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /
USER 65532:65532
