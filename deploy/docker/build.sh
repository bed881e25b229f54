#!/bin/sh
# Builds what the images hold: static binaries for /, the certificates that https clients of loadgen need, and the folder for its reports. The
# Dockerfile runs this script; without Docker it makes the same bytes, whatever folder the sources are in.
#
#   deploy/docker/build.sh OUT_DIR
#
# REVISION names the commit in --version; by default it is asked of git, and left out where there is none (images: --build-arg REVISION=...).
set -eu
out=${1:?usage: deploy/docker/build.sh OUT_DIR}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/../.."

revision=${REVISION:-$(git rev-parse HEAD 2>/dev/null || true)}
export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off
for program in frontend mockworker loadgen; do
	# Nothing of the place and the time of the build goes in: no paths, no VCS stamp (an image's context has no repository), no build id.
	go build -trimpath -buildvcs=false \
		-ldflags "-s -w -buildid= -X github.com/laneway-ai/laneway/internal/program/cli.revision=$revision" \
		-o "$out/$program" "./cmd/$program"
done
mkdir -p "$out/reports"
