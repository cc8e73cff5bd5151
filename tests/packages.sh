#!/bin/sh
# Installs the Debian or Ubuntu packages that are missing; as somebody else than root says what to run.
#
#   tests/packages.sh MAKE-TARGET PACKAGE...
set -eu
goal=$1
shift

installed() { dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed; }

missing=
for package; do installed "$package" || missing="$missing $package"; done
# Namespaces need root even where nothing is missing.
if [ -z "$missing" ]; then
    [ "$goal" = build ] || [ "$(id -u)" = 0 ] && exit 0
    echo "make $goal needs root for its network namespaces; run: sudo make $goal" >&2
    exit 1
fi
if ! command -v apt-get >/dev/null; then
    echo "make $goal needs these Debian packages or what matches them here:$missing" >&2
    exit 1
fi
if [ "$(id -u)" != 0 ]; then
    echo "make $goal needs packages that are missing; run:" >&2
    echo "  sudo apt-get install --no-install-recommends$missing" >&2
    echo "  sudo make $goal" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get install -y -q --no-install-recommends $missing >/dev/null 2>&1 ||
    { apt-get update -q >/dev/null && apt-get install -y -q --no-install-recommends $missing >/dev/null; }
