#!/bin/sh
# Tests an image from inside. docker/image.sh runs it as strictly as the image has to bear: an
# unknown user, a read-only root, no home, no network, no GPU.
set -eu
cd /opt/ffpa

step() {
  echo "ffpa: image: $*"
}

fail() {
  echo "error: image: $*" >&2
  exit 1
}

step "$FFPA_IMAGE"
step 'the user owns nothing, and only /results and /tmp can be written'
for path in README.md /probe; do
  if touch "$path" 2>/dev/null; then fail "$path can be written"; fi
done
[ "$HOME" = /tmp ] || fail "HOME is $HOME"

step 'the first thing said without a GPU'
said=$(docker/entrypoint.sh true 2>&1)
wanted='no CUDA device visible: add --gpus all'
case $FFPA_IMAGE in
*', only kernels '*) wanted="$FFPA_IMAGE: $wanted" ;;
esac
[ "$said" = "$wanted" ] || fail "the entrypoint says: $said"

step 'nox lists its sessions'
sessions=$(nox --list)
echo "$sessions" | grep -q '^- bench .*-> .* min' || fail 'bench is not listed with its minutes'

step 'a measurement is refused, and writes nothing'
if said=$(nox --session bench 2>&1); then fail 'bench passed without a GPU'; fi
echo "$said" | grep -q '^no CUDA device visible: add --gpus all$' || fail "bench says: $said"
[ -z "$(ls /results)" ] || fail "a refused run wrote $(ls /results)"

step 'tests, of the extension too'
nox --session tests
nox --session build -- --allow-spills

step 'one shape by the CPU model, with the image in its environment'
python experiments/run.py d=576 acc=f32
grep -q '"kernel"' /results/cpu/*.jsonl
grep -qF "$FFPA_IMAGE" /results/cpu/environment.json || fail 'environment.json lacks the image'

step 'figures equal those that are committed, byte for byte'
nox --session figures
(cd "$FFPA_SITE/figures/paper" && sha256sum --check --quiet /opt/ffpa/paper_figures/out/SHA256SUMS)

step 'claims and report'
nox --session claims
nox --session report
[ -s "$FFPA_SITE/index.html" ] || fail 'no page was written'
