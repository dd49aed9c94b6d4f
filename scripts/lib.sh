# Shared by the scripts in this folder: `. "$(dirname "$0")/lib.sh"`.
# Goes to the root of the repository and names the folders that all agree on.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

# What cargo builds, and kvlock.so beside it.
target=${CARGO_TARGET_DIR:-$root/target}

# The brought servers: no output of cargo, so they stay where they are when
# somebody builds elsewhere.
servers=$root/target/servers

say() { printf '==> %s\n' "$*" >&2; }
die() { printf '%s: %s\n' "scripts/$(basename "$0")" "$*" >&2; exit 1; }
