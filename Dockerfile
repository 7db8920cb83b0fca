# GoNoGo in one image: `serve`, `background`, `worker`, `db upgrade` are its commands (docker-compose.yml). Runs as nobody in particular.
FROM python:3.12.12-slim-bookworm AS build
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY locks locks
# what runs, exactly as locked, in a folder of its own
RUN python -m venv /opt/gonogo \
 && /opt/gonogo/bin/python -m pip install --no-deps --require-hashes --only-binary :all: -r locks/run-py312.txt
# what builds (hatchling, node, Sphinx), also as locked
RUN python -m venv /opt/build \
 && /opt/build/bin/python -m pip install --no-deps --require-hashes --only-binary :all: -r locks/dev-py312.txt
COPY . .
RUN PYTHONPATH=. /opt/build/bin/python -m tests.checks.manual \
 && PATH=/opt/build/bin:$PATH /opt/build/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir /dist . \
 && /opt/gonogo/bin/python -m pip install --no-deps /dist/gonogo-*.whl

FROM python:3.12.12-slim-bookworm
RUN groupadd --gid 10001 gonogo \
 && useradd --uid 10001 --gid gonogo --no-create-home --home-dir /var/lib/gonogo --shell /usr/sbin/nologin gonogo \
 && install -d -o gonogo -g gonogo /var/lib/gonogo \
 # the user that kernels run as on a worker (GONOGO_CHILD_USER); its cache is its own
 && groupadd --gid 10002 gonogo-kernel \
 && useradd --uid 10002 --gid gonogo-kernel --no-create-home --home-dir /var/cache/gonogo-kernel --shell /usr/sbin/nologin gonogo-kernel \
 && install -d -m 700 -o gonogo-kernel -g gonogo-kernel /var/cache/gonogo-kernel
COPY --from=build /opt/gonogo /opt/gonogo
ENV PATH=/opt/gonogo/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    GONOGO_VAR_DIR=/var/lib/gonogo
USER gonogo
WORKDIR /var/lib/gonogo
EXPOSE 8717
STOPSIGNAL SIGTERM
ENTRYPOINT ["gonogo"]
CMD ["serve", "--host", "0.0.0.0"]
