#!/usr/bin/env bash
# SoftHSM 2.6.1: each login rewrites the token in place, from nothing.
#
# C_Login, whether the PIN is right or wrong, writes the flag for wrong PINs into the token's object, also where it is
# as it was: `token.object` is truncated to nothing and written again, in place, without fsync and without a new file that
# takes its name. That file has the key that all other objects are encrypted with. If the process is killed in between,
# or the disk is full, the next program finds no token. A login looks like reading: one doesn't expect that it
# is what a backup is needed for, or what a read-only file system makes different.
#
# Seen with Debian's libsofthsm2 2.6.1-2.1, by strace of pkcs11-tool (OpenSC 0.23); the lines stand at the end.
#
# Needs Debian 12, apt-get, pkcs11-tool, softhsm2-util, strace. Fails if it sees anything else.
set -euo pipefail
version=2.6.1-2.1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
apt-get download "libsofthsm2=$version" "softhsm2=$version" 2>/dev/null >&2
for package in *.deb; do dpkg -x "$package" root; done
library=$place/root/usr/lib/softhsm/libsofthsm2.so
mkdir tokens
echo "directories.tokendir = $place/tokens" >softhsm2.conf
export SOFTHSM2_CONF=$place/softhsm2.conf
root/usr/bin/softhsm2-util --module "$library" --init-token --free --label t --pin 1234 --so-pin 12345678 >/dev/null
object=$(echo tokens/*/token.object)

# session NAME ARGUMENT…: what one session of pkcs11-tool does to token.object, as a line.
session() {
  local name=$1 inode truncated written synced
  shift
  inode=$(stat -c %i "$object")
  strace -f -y -o calls -e trace=openat,ftruncate,write,fsync,fdatasync,rename \
    pkcs11-tool --module "$library" "$@" --list-objects >/dev/null 2>&1 || true
  truncated=$(grep -cE 'ftruncate\([0-9]+<[^>]*/token.object>, 0\)|token.object", .*O_TRUNC' calls || true)
  written=$(grep -cE 'write\([0-9]+<[^>]*/token.object>' calls || true)
  synced=$(grep -cE 'f(data)?sync\([0-9]+<[^>]*/token.object>|rename\(.*token.object' calls || true)
  [ "$(stat -c %i "$object")" = "$inode" ] || truncated="another inode"
  echo "$name: truncated $truncated, written $written, synced or renamed $synced"
}
{
  session "without a login"
  session "a right login" --login --pin 1234
  session "a wrong login" --login --pin 9999
  session "the next right login" --login --pin 1234
} | tee seen
diff - seen <<'SEEN'
without a login: truncated 0, written 0, synced or renamed 0
a right login: truncated 1, written 1, synced or renamed 0
a wrong login: truncated 1, written 1, synced or renamed 0
the next right login: truncated 1, written 1, synced or renamed 0
SEEN
echo "SoftHSM 2.6.1 still does this."
