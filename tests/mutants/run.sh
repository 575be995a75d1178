#!/usr/bin/env bash
# Applies the deliberate bugs of this folder to a copy of the sources, and expects each to be caught.
#
# `run.sh [NAME…]`: those named, or all. The header of a patch says what catches it: tests by name, each of which must fail with the bug in
# place, or the simulator, which must find it among `Seeds: FROM COUNT` (0 200). Before, all these must pass without any. A copy that does not
# build is an error of the patch. A test that ends within LIMIT_S (120) neither well nor badly hangs, which catches it, too.
#
# Most of the time goes into building. So only what the tests named need is built; and bugs that stay within one service, with tests beside it,
# are tried in rounds, one of each service at once: no service names another. Where a test of such a round hangs, its bugs are tried again one
# by one. The last line has the totals; 1 if a bug was not caught.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
dir=$root/target/mutants
tree=$dir/tree
log=$dir/log
out=$dir/out
missed=$dir/missed
hung=$dir/hung
limit=${LIMIT_S:-120}
export CARGO_TARGET_DIR=$dir/target CARGO_TERM_COLOR=never

mkdir -p "$tree"
exec 9>"$dir/lock"
flock --nonblock 9 || { echo "another run is under way in $dir"; exit 1; }

# Copies the sources with new times, so that nothing built from an earlier bug is taken for them.
find "$tree" -mindepth 1 -maxdepth 1 ! -name azurite -exec rm -rf {} +
(cd "$root" && git ls-files -z --cached --others --exclude-standard | tar --ignore-failed-read --null --files-from - --create) |
  tar --extract --touch --directory "$tree"
[[ -e $tree/azurite/node_modules ]] || ln -s "$root/azurite/node_modules" "$tree/azurite/node_modules"
cd "$tree"
# Within a repository `git apply` passes over what lies outside of the current folder.
export GIT_CEILING_DIRECTORIES=$dir

session=
end_session() { [[ -z $session ]] || pkill -KILL --session "$session" || true; }
trap end_session EXIT
trap 'exit 1' INT TERM

# Runs a command in a session of its own, of which nothing is left behind when it ends or its time is over; its words are in $out.
run() {
  local code=0
  setsid timeout --kill-after 10 "$limit" "$@" >"$out" 2>&1 9>&- &
  session=$!
  wait "$session" || code=$?
  end_session
  session=
  cat "$out" >>"$log"
  return $code
}

# `header WORD FILE…`: what lines of the headers list, one a line.
header() { sed -n "s/^$1: //p" "${@:2}" | tr ',' '\n' | sed 's/^ *//; s/^test //' | sort -u; }

# `within FOLDER TEST`: whether the test is there.
within() { grep -rqE "fn $2\b" "$1"; }

# `simulate FROM COUNT`: prints `sim` if no seed notices anything; in small steps, so that the first that fails ends it.
simulate() {
  local from=$1 count=$2
  for ((; count > 0; from += 10, count -= 10)); do
    run "$CARGO_TARGET_DIR/debug/examples/sim" --seeds "$from" 10 || return 0
  done
  echo sim
}

# `check FILE…`: prints what, of all that is to catch these bugs, does not notice anything, and notes in $hung what does not end; 1 if the
# copy does not build.
check() {
  local test target seeds
  local -A tests=()
  : >"$hung"
  for test in $(header 'Caught by' "$@"); do
    if [[ $test == sim ]]; then target=sim; elif within src "$test"; then target=--lib; else target='--test suite'; fi
    tests[$target]+=" $test"
  done
  for target in "${!tests[@]}"; do
    if [[ $target == sim ]]; then
      limit=900 run cargo build --locked --features sim --example sim || return 1
      seeds=$(header Seeds "$@" | head -1)
      # shellcheck disable=SC2086
      simulate ${seeds:-0 200}
    else
      # shellcheck disable=SC2086
      limit=900 run cargo test --locked $target --no-run || return 1
      # shellcheck disable=SC2086
      run cargo test --locked $target -- ${tests[$target]} || true
      for test in ${tests[$target]}; do
        if grep -Eq "^test (.*::)?$test \.\.\. ok$" "$out"; then
          echo "$test"
        elif ! grep -Eq "^test (.*::)?$test \.\.\. FAILED$" "$out"; then
          echo "$test" >>"$hung"
        fi
      done
    fi
  done
}

# `service_of FILE`: the folder in which a bug stays, and its tests; none if there is no such.
service_of() {
  local folder test
  for folder in src/client src/coordinator src/store/azure src/worker; do
    if sed -n 's,^+++ b/,,p' "$1" | grep -qv "^$folder/"; then continue; fi
    for test in $(header 'Caught by' "$1"); do within "$folder" "$test" || return 0; done
    echo "$folder"
  done
}

patches=()
if (($#)); then
  for name in "$@"; do patches+=("tests/mutants/$name.patch"); done
else
  patches=(tests/mutants/*.patch)
fi

: >"$log"
check "${patches[@]}" >"$missed" || { tail -30 "$log"; echo "the sources do not build"; exit 1; }
for test in $(header 'Caught by' "${patches[@]}"); do
  grep -qx "$test" "$missed" || { echo "\`$test\` does not pass without any bug, or does not exist"; exit 1; }
done

declare -A rounds=() taken=()
for patch in "${patches[@]}"; do
  service=$(service_of "$patch")
  round=${service:+${taken[$service]:=0}}
  rounds[${round:-$patch}]+=" $patch"
  if [[ -n $service ]]; then taken[$service]=$((round + 1)); fi
done

caught=0
# `try PATCH…`: tries bugs at once, and says of each whether it was caught.
try() {
  local patch name survived began=$SECONDS
  git apply --whitespace=nowarn "$@" || { echo "DOES NOT APPLY: ${*##*/}"; return; }
  # Not in a subshell, which would keep the session from being ended.
  if ! check "$@" >"$missed"; then
    grep -A 12 '^error' "$out" | head -30
    echo "DOES NOT BUILD: ${*##*/}"
  elif [[ -s $hung ]] && (($# > 1)); then
    git apply --whitespace=nowarn --reverse "$@"
    for patch in "$@"; do try "$patch"; done
    return
  else
    for patch in "$@"; do
      name=$(basename "$patch" .patch)
      survived=$(header 'Caught by' "$patch" | grep -xFf "$missed" | paste -sd' ' || true)
      if [[ -n $survived ]]; then
        echo "$name: SURVIVED $survived"
      else
        echo "$name: caught by $(header 'Caught by' "$patch" | paste -sd' ') ($((SECONDS - began)) s)"
        caught=$((caught + 1))
      fi
    done
  fi
  git apply --whitespace=nowarn --reverse "$@"
}

for round in "${!rounds[@]}"; do
  read -ra at_once <<<"${rounds[$round]}"
  try "${at_once[@]}"
done
echo "$caught of ${#patches[@]} caught in $SECONDS s"
((caught == ${#patches[@]}))
