#!/bin/sh
# Puts the kernels of this commit where the device hosts find them, under the name of its build.
# Here that is a folder that both can reach; yours may be a registry of images or a package index.
set -eu
mkdir -p "$KERNELS_STORE/$1"
cp kernels/layernorm.py "$KERNELS_STORE/$1/"
