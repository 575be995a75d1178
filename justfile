# Prints every command with one line of help.
_default:
    @{{just_executable()}} --list --unsorted

# Checks format and lints; what is quick.
check: fmt lint

# Checks the format.
fmt:
    cargo fmt --check

# Lints all targets; a warning is an error.
lint:
    cargo clippy --locked --all-targets --all-features -- -D warnings

# Runs all tests; starts its own emulator.
test *ARGS:
    cargo test --locked {{ARGS}}

# Simulates the histories of seeds and prints what happens: `just sim 7`, or `just sim --seeds 0 500` for what fails among many.
sim *ARGS:
    cargo run --locked --quiet --features sim --example sim -- {{ARGS}}

# Simulates fresh seeds for a minute, or for so many; prints how to replay each that fails, and counts.
sim-soak *MINUTES:
    cargo run --locked --quiet --features sim --example sim -- --soak {{MINUTES}}

# Applies the deliberate bugs of `tests/mutants` one at a time to a copy, and expects each to be caught; or only those named.
mutants *NAMES:
    tests/mutants/run.sh {{NAMES}}

# Kills, pauses and restarts real processes over workflows that keep coming: `just chaos 5 30` for 5 minutes and 30 of them; `CHAOS_SEED` tries the same again.
chaos MINUTES='20' WORKFLOWS='50':
    env CHAOS_MINUTES={{MINUTES}} CHAOS_WORKFLOWS={{WORKFLOWS}} cargo test --locked --test suite chaos::long_chaos -- --ignored --exact --nocapture

# Simulates fresh seeds for 60 s, or for so many; fails if one does, and prints how to replay it.
sim-fresh *SECONDS:
    cargo run --locked --quiet --features sim --example sim -- --fresh {{SECONDS}}

# Random definitions, stored bytes and workflows, so many of each; in the tests a few hundred.
properties CASES='100000':
    env PROPTEST_CASES={{CASES}} cargo test --locked -- random:: damage::

# Builds the API documentation; a broken link is an error.
doc:
    env RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items

# Checks licences, bans and sources of dependencies; needs cargo-deny.
deny:
    cargo deny check bans licenses sources

# Builds what is shipped.
build:
    cargo build --locked --release

# Runs a workflow of 197 tasks with what was built.
example:
    cargo run --locked --release -- run examples/montage-200.yaml

# Runs what CI runs: all of the above.
ci:
    .ci/run

# Starts emulator, coordinator and one worker on prefix `dev`; Ctrl-C ends all.
dev: _azurite
    #!/usr/bin/env bash
    set -eu
    cargo build
    export WORKFLOW_STORE=devstoreaccount1/dev
    # In a session of its own, so that Ctrl-C ends it last: the coordinator still gives its lease back.
    setsid node azurite/start.mjs --ignore-stdin --location azurite/data --blob-port 10000 --queue-port 10001 --table-port 10002 &
    emulator=$!
    trap 'kill $emulator' EXIT
    trap : INT
    until (exec 3<>/dev/tcp/127.0.0.1/10002) 2>/dev/null; do sleep 0.2; done
    target/debug/workflow coordinator --standby &
    coordinator=$!
    target/debug/workflow worker --queue default --queue cpu --slots 8 &
    worker=$!
    echo 'ready: target/debug/workflow submit --store devstoreaccount1/dev --watch examples/etl.yaml'
    # The first wait ends with Ctrl-C, which the two have got as well.
    wait $coordinator $worker || wait $coordinator $worker || true

# Measures requests per task, completions and engine steps.
bench *ARGS:
    cargo bench {{ARGS}}

_azurite:
    @[ -d azurite/node_modules ] || (cd azurite && npm ci --no-audit --no-fund)
