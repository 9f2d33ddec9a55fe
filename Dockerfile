FROM python:3.13.14-slim

# 10001 is the owner that the mounted key and known_hosts need on the host.
RUN useradd --uid 10001 --create-home steady \
    && install -d -o steady -g steady /var/lib/steady
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /opt/steady

COPY requirements.lock ./
RUN pip install --require-hashes -r requirements.lock

COPY pyproject.toml README.md LICENSE ./
COPY fleet fleet
COPY workflows workflows
COPY activities activities
COPY gateway gateway
COPY worker worker
COPY simulator simulator
RUN pip install --no-build-isolation --no-deps .

USER steady
WORKDIR /var/lib/steady
ENV STEADY_STATE_DIR=/var/lib/steady
ENTRYPOINT ["steady"]
CMD ["worker"]
