# shellcheck shell=bash disable=SC2034 # what is set here is used elsewhere
# Functions shared by all scripts. `scripts/test` and `scripts/release` run the scripts in this folder.
# Goes to the root of the repository and defines the folders that all scripts use.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD

# The output of cargo, and kvlock.so beside it.
target=${CARGO_TARGET_DIR:-$root/target}

# The installed servers. They are no output of cargo, so their folder does not depend on the target folder.
servers=$root/target/servers

say() { printf '==> %s\n' "$*" >&2; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# code_commit: the last commit that changed more than documents and what tests have written down.
code_commit() { git log -1 --format=%h "$@" -- . ':!docs' ':!*.md' ':!tests/kills.txt' ':!bench/results'; }

# part NAME: begins a part of a long script, and prints the duration of the last one.
part_name='' part_began=0
part() {
    [ -z "$part_name" ] || say "$part_name: $((SECONDS - part_began)) s"
    part_name=${1:-} part_began=$SECONDS
    [ -z "$part_name" ] || say "$part_name"
}

# The first of these programs that is installed.
first_of() {
    local name
    for name; do command -v "$name" && return; done
    return 1
}

# packages_to_build: sets $packages to missing packages that cargo needs.
packages=()
packages_to_build() {
    command -v cargo >/dev/null || die "needs Rust 1.88 or later, with rustfmt and clippy: https://rustup.rs"
    command -v cc >/dev/null || packages+=(build-essential)
    # libclang-cpp alone is not enough: it is another library.
    [ -n "${LIBCLANG_PATH:-}" ] || compgen -G '/usr/lib/llvm-*/lib/libclang[.-][s0-9]*' >/dev/null || packages+=(libclang-dev)
}

# install_packages: installs $packages, as root or with sudo; without either it prints them.
install_packages() {
    local sudo=()
    [ ${#packages[@]} -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || sudo=(sudo)
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null || die "install these first: ${packages[*]}"
    say "installing ${packages[*]}"
    "${sudo[@]}" apt-get -q update
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600 --no-install-recommends install "${packages[@]}"
}

# The Debian mirror that this machine uses.
debian_mirror() {
    local mirror=${KVLOCK_DEBIAN_MIRROR:-}
    # shellcheck disable=SC2016 # apt's own variable
    [ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | awk '/\/debian\/*$/ && !found++')
    [ -n "$mirror" ] ||
        die "no Debian mirror in the apt sources of this machine: set KVLOCK_DEBIAN_MIRROR to the address of one"
    echo "$mirror"
}

# Prints a port on which no process listens at this moment.
free_port() {
    local port
    for port in $(shuf -i 20000-30000 -n 20); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port" && return; }
    done
    die "no port is free"
}

# serve SERVER CLI FOLDER ARGUMENT...: starts a private server on a free port, and
# sets $pid and $port. It leaves no files: no snapshot, no append-only file.
serve() {
    local server=$1 cli=$2 folder=$3
    for port in $(shuf -i 20000-30000 -n 5); do
        "$server" --port "$port" --bind 127.0.0.1 --dir "$folder" --logfile server.log --save '' --appendonly no \
            "${@:4}" </dev/null >/dev/null 2>&1 &
        pid=$!
        for _ in $(seq 100); do
            # Check that this server replies, and not another one that has bound the port first.
            [ "$("$cli" -p "$port" info server 2>/dev/null | tr -d '\r' | sed -n 's/^process_id://p')" != "$pid" ] || return 0
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        stop_serving
    done
    cat "$folder/server.log" >&2 || true
    die "the server did not start"
}

# stop_serving: ends what serve started, if it did.
pid=
stop_serving() {
    [ -n "$pid" ] || return 0
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    pid=
}
