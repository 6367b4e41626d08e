#!/usr/bin/env bash
# Holds the native kernels of all instruction sets against each other, bit for bit: builds native/test/selftest.c with
# every compiler found, runs it here, and for AArch64 under qemu, and compares the hashes. Says what ran and what did not.
#
# usage: scripts/check-native-isas.sh [folder for the builds]
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$(mktemp -d "${TMPDIR:-/tmp}/plumbline-isas.XXXXXX")}
mkdir -p "$out"
flags=(-std=c11 -O3 -ffp-contract=off -fno-fast-math -fno-math-errno -fno-trapping-math -Wall -Wextra -Werror -Wno-unknown-pragmas -pthread)
common=(call executor isa plan plan-check pool kernels-generic)
failures=0
reference=

# build COMPILER NAME KERNELS...: compiles the self-test with these kernels
build() {
  local compiler=$1 name=$2
  shift 2
  local folder=$out/$name objects=()
  mkdir -p "$folder"
  for file in "${common[@]}" "$@"; do
    local extra=()
    [ "$file" = kernels-avx2 ] && extra=(-mavx2 -mfma -mf16c)
    [ "$file" = kernels-avx512 ] && extra=(-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c)
    $compiler "${flags[@]}" "${extra[@]}" -c "$root/native/src/$file.c" -o "$folder/$file.o"
    objects+=("$folder/$file.o")
  done
  $compiler "${flags[@]}" "$root/native/test/selftest.c" "$root/native/test/scenario.c" "${objects[@]}" -lm -o "$folder/selftest"
}

# judge NAME COMMAND...: runs a self-test and compares its hashes with the first one's
judge() {
  local name=$1
  shift
  if ! "$@" > "$out/$name.hashes" 2> "$out/$name.log"; then
    echo "FAILED  $name"
    sed 's/^/        /' "$out/$name.log" | head -20
    failures=$((failures + 1))
    return
  fi
  local ran
  ran=$(sed -n 's/^ran: //p' "$out/$name.log" | tr '\n' ' ')
  if [ -z "$reference" ]; then
    reference=$out/$name.hashes
  elif ! diff -q "$reference" "$out/$name.hashes" > /dev/null; then
    echo "DIFFERS $name ($ran)"
    diff "$reference" "$out/$name.hashes" | head -20 | sed 's/^/        /'
    failures=$((failures + 1))
    return
  fi
  echo "ok      $name: $ran($(wc -l < "$out/$name.hashes") hashes)"
}

case $(uname -m) in
  x86_64) own=(kernels-avx2 kernels-avx512) ;;
  aarch64 | arm64) own=(kernels-neon) ;;
  *) own=() ;;
esac

for compiler in gcc clang clang-14; do # Debian names its clang by version
  if ! command -v "$compiler" > /dev/null; then
    echo "not run $compiler: not installed"
    continue
  fi
  build "$compiler" "$compiler" "${own[@]}"
  judge "$compiler" "$out/$compiler/selftest"
done

if [ "$(uname -m)" = x86_64 ]; then
  if ! command -v aarch64-linux-gnu-gcc > /dev/null; then
    echo "not run neon: aarch64-linux-gnu-gcc is not installed (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross)"
  else
    build "aarch64-linux-gnu-gcc -static" aarch64 kernels-neon
    if command -v qemu-aarch64 > /dev/null; then
      judge aarch64 qemu-aarch64 "$out/aarch64/selftest"
    else
      echo "not run neon: it compiles, but qemu-aarch64 is not installed (Debian: qemu-user)"
    fi
  fi
fi
exit $((failures > 0))
