#!/usr/bin/env bash
# Applies the deliberate bugs of this folder one at a time to a copy of the sources, and expects each to be caught.
#
# `run.sh [NAME…]`: those named, or all. The header of a patch says what catches it: the simulator, or tests by name, each of which must
# fail with the bug in place. Before, all tests named must pass without any. A copy that does not build is an error of the patch; one that
# hangs is caught. SEEDS (200) bounds what the simulator is asked, LIMIT_S (400) a test. Ends with 1 if a bug was not caught.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
tree=$root/target/mutants/tree
log=$root/target/mutants/log
seeds=${SEEDS:-200}
limit=${LIMIT_S:-400}
export CARGO_TARGET_DIR=$root/target/mutants/target CARGO_TERM_COLOR=never

# Copies the sources with new times, so that nothing built from an earlier bug is taken for them.
mkdir -p "$tree"
find "$tree" -mindepth 1 -maxdepth 1 ! -name azurite -exec rm -rf {} +
(cd "$root" && git ls-files -z --cached --others --exclude-standard | tar --null --files-from - --create) | tar --extract --touch --directory "$tree"
[[ -e $tree/azurite/node_modules ]] || ln -s "$root/azurite/node_modules" "$tree/azurite/node_modules"
cd "$tree"
# Within a repository `git apply` passes over what lies outside of the current folder.
export GIT_CEILING_DIRECTORIES=$root/target/mutants

caught_by() { sed -n 's/^Caught by: //p' "$1"; }

build() { cargo build --locked --features sim --example sim >>"$log" 2>&1 && cargo test --locked --no-run >>"$log" 2>&1; }

# Runs one test; 0 if it ran and passed, 2 if there is no such test.
passes() {
  local out
  out=$(timeout --kill-after 10 "$limit" cargo test --locked -- "$1" 2>&1) || { printf '%s\n' "$out" >>"$log"; return 1; }
  printf '%s\n' "$out" >>"$log"
  grep -Eq '^test (.*::)?'"$1"' \.\.\. ok$' <<<"$out" || return 2
}

# Runs seeds in small steps, so that the first that fails ends it.
survives_the_simulator() {
  local from
  for ((from = 0; from < seeds; from += 10)); do
    timeout --kill-after 10 "$limit" "$CARGO_TARGET_DIR/debug/examples/sim" --seeds "$from" 10 >>"$log" 2>&1 || return 1
  done
}

# Tells by which of its means a bug is not caught.
missed_by() {
  local means
  while IFS= read -r means; do
    if [[ $means == sim ]]; then
      survives_the_simulator && echo "the simulator, $seeds seeds"
    else
      passes "${means#test }" && echo "$means"
    fi
  done < <(caught_by "$1" | tr ',' '\n' | sed 's/^ *//; s/^\([a-z_0-9]\{4,\}\)$/test \1/')
  return 0
}

patches=()
if (($#)); then
  for name in "$@"; do patches+=("$here/$name.patch"); done
else
  patches=("$here"/*.patch)
fi

: >"$log"
build || { tail -30 "$log"; echo "the sources do not build"; exit 1; }
for name in $(cat "${patches[@]}" | sed -n 's/^Caught by: //p' | tr ',' '\n' | sed 's/^ *//; s/^test //' | grep -vx sim | sort -u); do
  passes "$name" || { echo "\`$name\` does not pass without any bug, or does not exist"; exit 1; }
done

failed=0
for patch in "${patches[@]}"; do
  name=$(basename "$patch" .patch)
  began=$SECONDS
  git apply --whitespace=nowarn "$patch" || { echo "$name: does not apply"; failed=1; continue; }
  if ! build; then
    tail -30 "$log"
    echo "$name: DOES NOT BUILD"
    failed=1
  else
    missed=$(missed_by "$patch")
    if [[ -n $missed ]]; then
      echo "$name: SURVIVED $(tr '\n' ';' <<<"$missed")"
      failed=1
    else
      echo "$name: caught by $(caught_by "$patch") ($((SECONDS - began)) s)"
    fi
  fi
  git apply --whitespace=nowarn --reverse "$patch"
done
exit $failed
