#!/bin/sh
# Starts the server of this image with the module, and with the options that are
# given. Anything but options is carried out as it is: `redis-cli`, `sh`.
case "${1:-}" in
"" | -*) set -- --loadmodule /usr/local/lib/kvlock.so "$@" ;;
esac
exec docker-entrypoint.sh "$@"
