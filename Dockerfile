# A Redis or Valkey server with kvlock loaded, for example
#
#     docker build -t kvlock .
#     docker build -t kvlock --build-arg SERVER_IMAGE=valkey/valkey:9 .
#     docker build -t kvlock --build-arg SERVER_IMAGE=redis:8-alpine --build-arg LIBC=musl .
#
# scripts/release image builds and tries it, also where there is no docker. An image from
# Debian 12 or later, or one with musl, can be the base; it must have a
# docker-entrypoint.sh that takes options for the server, as the official ones do.
ARG RUST_IMAGE=rust:1-bookworm
ARG SERVER_IMAGE=redis:8

FROM ${RUST_IMAGE} AS build
ARG LIBC=gnu
RUN apt-get -q update \
    && DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install gcc libc6-dev libclang-dev musl-tools \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /kvlock
COPY . .
RUN if [ "$LIBC" = musl ]; then scripts/build --musl && mv target/kvlock-musl.so target/kvlock.so; else scripts/build; fi

FROM ${SERVER_IMAGE}
LABEL org.opencontainers.image.title="kvlock" org.opencontainers.image.licenses="MIT OR Apache-2.0"
COPY --from=build /kvlock/target/kvlock.so /usr/local/lib/kvlock.so
COPY LICENSE-APACHE LICENSE-MIT /usr/local/share/doc/kvlock/
COPY image/kvlock-entrypoint.sh /usr/local/bin/
ENTRYPOINT ["kvlock-entrypoint.sh"]
