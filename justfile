# Prints every command with one line of help.
_default:
    @just --list --unsorted

# Formats, lints and type-checks everything.
check:
    cargo fmt --check
    cargo clippy --all-targets -- -D warnings

# Runs all tests; starts its own emulator.
test *ARGS:
    cargo test {{ARGS}}

# Runs what CI runs.
ci:
    .ci/run

# Starts emulator, coordinator and one worker on prefix `dev`; Ctrl-C ends all.
dev: _azurite
    #!/usr/bin/env bash
    set -eu
    cargo build
    export WORKFLOW_STORE=devstoreaccount1/dev
    trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
    node azurite/start.mjs --ignore-stdin --location azurite/data --blob-port 10000 --queue-port 10001 --table-port 10002 &
    until (exec 3<>/dev/tcp/127.0.0.1/10002) 2>/dev/null; do sleep 0.2; done
    target/debug/workflow coordinator --standby &
    target/debug/workflow worker --queue default --queue cpu --slots 8 &
    echo 'ready: WORKFLOW_STORE=devstoreaccount1/dev target/debug/workflow submit --watch examples/etl.yaml'
    wait

# Measures requests per task, completions and engine steps.
bench *ARGS:
    cargo bench {{ARGS}}

# Builds the API documentation.
doc:
    cargo doc --no-deps --document-private-items

_azurite:
    @[ -d azurite/node_modules ] || (cd azurite && npm ci --no-audit --no-fund)
