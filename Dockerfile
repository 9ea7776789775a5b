# Image of one broker. Environment variables configure it: ODRADEK_NODE_ID, ODRADEK_LISTENERS,
# ODRADEK_CONTROLLER_QUORUM_VOTERS, ... (docs/configuration.md).
FROM python:3.11-slim
WORKDIR /opt/odradek
COPY requirements-broker.lock ./
RUN pip install --no-cache-dir --require-hashes -r requirements-broker.lock
COPY pyproject.toml hatch_build.py LICENSE README.md ./
COPY broker broker
COPY client client
COPY cluster cluster
COPY coordinator coordinator
COPY odradek odradek
COPY pipeline pipeline
COPY protocol protocol
COPY runtime runtime
COPY spark spark
COPY storage storage
# .git is not copied. With `docker build --build-arg COMMIT=$(git rev-parse --short=12 HEAD)`, `odradek --version` prints
# the commit.
ARG COMMIT=""
RUN if [ -n "$COMMIT" ]; then echo "$COMMIT" > odradek/COMMIT; fi
RUN pip install --no-cache-dir --no-deps . && useradd --system --home /var/lib/odradek --create-home odradek
USER odradek
VOLUME /var/lib/odradek
# 9091/udp: the failure detector uses the port number of the listener for brokers.
EXPOSE 9091 9091/udp 9092 19092
ENV ODRADEK_LOG_DIRS=/var/lib/odradek/data
CMD ["odradek", "broker"]
