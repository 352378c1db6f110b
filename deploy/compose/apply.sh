#!/bin/sh
# Bring a cluster to its configuration. The first run creates the ledger.
set -eu
config=$1
if ! omnigraph cluster status --config "$config" --json | grep -q '"state_found": *true'; then
  omnigraph cluster import --config "$config"
fi
omnigraph cluster apply --config "$config" --as operator
