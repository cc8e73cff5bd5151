#!/bin/sh
# Runs every suite, one line each with its time, and ends with a line of counts. `make test` calls it after
# the packages and the stock peers are there.
#
#   tests/run.sh [SUITE...]      unit, fuzz, or the name of a file in tests/tests
#
# FUZZ_SECONDS (default 10) bounds each fuzz target. What a suite printed is in target/test-logs.
set -u
cd "$(dirname "$0")/.."
root=$PWD
target=${CARGO_TARGET_DIR:-$root/target}
logs=$target/test-logs
mkdir -p "$logs"

# The daemon under test reads shortened timers from its environment; a release build does not.
features="--features ringway-supervisor/test-timers"
export BORINGTUN="${BORINGTUN:-$target/peers/bin/boringtun-cli}"

passed=0 failed=0 ignored=0 broken=
began=$(date +%s)

# suite NAME COMMAND...: runs it, tells its outcome, adds its counts.
suite() {
    name=$1
    shift
    start=$(date +%s)
    "$@" >"$logs/$name.log" 2>&1
    status=$?
    seconds=$(($(date +%s) - start))
    set -- $(sed -n 's/^test result: [A-Za-z]*\. \([0-9]*\) passed; \([0-9]*\) failed; \([0-9]*\) ignored.*/\1 \2 \3/p' "$logs/$name.log" |
        awk '{ p += $1; f += $2; i += $3 } END { print p + 0, f + 0, i + 0 }')
    if [ "$name" = fuzz ]; then
        set -- "$(grep -c '^fuzz .*: ok' "$logs/fuzz.log")" "$(grep -c '^fuzz .*: FAILED' "$logs/fuzz.log")" 0
    fi
    passed=$((passed + $1)) failed=$((failed + $2)) ignored=$((ignored + $3))
    if [ $status = 0 ]; then
        printf '%-14s ok      %4d passed  %4d s\n' "$name" "$1" "$seconds"
    else
        broken="$broken $name"
        printf '%-14s FAILED  %4d passed, %d failed  %4d s   %s\n' "$name" "$1" "$2" "$seconds" "$logs/$name.log"
        grep -E '^test .*FAILED|panicked at|^error|FAILED' "$logs/$name.log" | head -20 | sed 's/^/    /'
    fi
}

build() {
    cargo build --workspace --bins $features &&
        cargo test --workspace --no-run $features
}

end_to_end() {
    # Two at a time suit two cores; the flood measures rates and is alone anyhow.
    cargo test --workspace $features --test "$1" -- --test-threads=2
}

[ $# -gt 0 ] || set -- unit $(ls tests/tests | sed -n 's/\.rs$//p' | grep -v '^flood$') flood fuzz

start=$(date +%s)
if ! build >"$logs/build.log" 2>&1; then
    tail -40 "$logs/build.log"
    echo "make test: the build failed, see $logs/build.log"
    exit 1
fi
printf '%-14s ok                   %4d s\n' build $(($(date +%s) - start))

for name; do
    case $name in
        unit) suite unit cargo test --workspace --exclude ringway-tests $features ;;
        fuzz) [ ! -x tests/fuzz/run.sh ] || suite fuzz tests/fuzz/run.sh "${FUZZ_SECONDS:-10}" ;;
        *) suite "$name" end_to_end "$name" ;;
    esac
done

echo "$passed passed, $failed failed, $ignored ignored in $(($(date +%s) - began)) s${broken:+; failed:$broken}"
[ -z "$broken" ]
