#!/bin/sh
# Builds the fuzz targets and runs each for SECONDS (default 10), as many at a
# time as there are cores. One line a target; ends with 1 if one crashed.
#
#   tests/fuzz/run.sh [SECONDS] [TARGET...]
#
# Needs no cargo-fuzz and no nightly compiler: the instrumentation is LLVM's and
# the driver libFuzzer, which the crate libfuzzer-sys builds with the C++ compiler.
# New inputs are kept in target/corpus, those that crash in target/crashes.
set -eu
cd "$(dirname "$0")"

seconds=${1:-10}
[ $# -eq 0 ] || shift
case $seconds in
    '' | *[!0-9]*) echo "usage: $0 [SECONDS] [TARGET...]" >&2; exit 2 ;;
esac
[ $# -gt 0 ] || set -- $(ls targets | sed 's/\.rs$//')

if ! command -v c++ >/dev/null; then
    echo "fuzz: no C++ compiler: apt-get install g++" >&2
    exit 1
fi

target_dir=${CARGO_TARGET_DIR:-$PWD/target}
case $target_dir in /*) ;; *) target_dir=$PWD/$target_dir ;; esac
host=$(rustc -vV | sed -n 's/^host: //p')
bins=
for target; do bins="$bins --bin $target"; done

# With --target the flags reach the targets and their crates, but no build script
# and no macro, which have no driver to link with.
CARGO_TARGET_DIR="$target_dir" \
RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module \
-Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares" \
    cargo build --quiet --release --target "$host" $bins

export FUZZ_BIN="$target_dir/$host/release" FUZZ_OUT="$target_dir" FUZZ_SECONDS="$seconds"
printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} sh -c '
    target={}
    corpus=$FUZZ_OUT/corpus/$target crashes=$FUZZ_OUT/crashes log=$FUZZ_OUT/$target.log
    mkdir -p "$corpus" "$crashes"
    if "$FUZZ_BIN/$target" -max_total_time="$FUZZ_SECONDS" -timeout=10 -rss_limit_mb=1024 \
        -max_len=4096 -print_final_stats=1 -artifact_prefix="$crashes/$target-" \
        "$corpus" "seeds/$target" >"$log" 2>&1
    then
        runs=$(sed -n "s/^stat::number_of_executed_units: *//p" "$log")
        echo "fuzz $target: ok, $runs runs in $FUZZ_SECONDS s"
    else
        echo "fuzz $target: FAILED, see $log; the input is in $crashes"
        grep -m1 -A1 -E "panicked at|ERROR: libFuzzer" "$log" | sed "s/^/    /"
        exit 1
    fi' || exit 1
