#!/usr/bin/env bash
# Runs a command that fetches something from elsewhere; when that fails or hangs, again, and four times in all.
# Never for tests: what fails there has failed.
set -uo pipefail

bounded=()
command -v timeout > /dev/null && bounded=(timeout --foreground --kill-after=30s 20m)
for pause in 5 20 60 0; do
    ${bounded[@]+"${bounded[@]}"} "$@" && exit 0
    code=$?
    [ "$pause" -eq 0 ] && exit "$code"
    echo "ended with $code: $*; once more in $pause s" >&2
    sleep "$pause"
done
