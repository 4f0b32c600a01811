# A CPU image of the server. The models are mounted; nothing is downloaded when it runs. Python is of the version that the
# pins of constraints.txt are tested with. For a small image give the index of torch's CPU builds
# (docker build --build-arg TORCH_INDEX=URL .): otherwise pip finds the build for GPUs, which is gigabytes larger.
# The base is a tag unless its digest is given, which fixes every byte of it:
# --build-arg PYTHON=python:3.11-slim@sha256:… (docker buildx imagetools inspect python:3.11-slim prints it).
ARG PYTHON=python:3.11-slim
FROM ${PYTHON} AS build
ARG TORCH_INDEX
WORKDIR /build
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
RUN python -m venv /opt/headway \
 && /opt/headway/bin/pip install --no-cache-dir -c constraints.txt ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} \
    ".[serve,fast,audio]"

FROM ${PYTHON}
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin headway
COPY --from=build /opt/headway /opt/headway
ENV PATH=/opt/headway/bin:$PATH HF_HUB_OFFLINE=1 NUMBA_CACHE_DIR=/tmp/numba PYTHONDONTWRITEBYTECODE=1
# A number: Kubernetes' runAsNonRoot cannot check a name.
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-m", "headway.serving.probe"]
ENTRYPOINT ["headway", "serve", "--host", "0.0.0.0", "--port", "8000"]
