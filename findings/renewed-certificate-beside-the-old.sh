#!/usr/bin/env bash
# Two certificates of one key on a token, the old and the renewed: which one do programs take, and do they show both?
#
# Both lie beside the key, with its CKA_ID and label, which PKCS#11 allows and every renewal makes until the old one is
# removed. SoftHSM gives objects out in the order of their files' names, which are random: which certificate is "the first"
# is drawn by lot when they are written and then stays, so that the same commands on two machines end differently.
# - pkcs11-tool and GnuTLS take the first one, though it has expired;
# - p11tool --list-all-certs shows two certificates, but both times the first one: the other can't be seen, nor exported;
# - libp11 takes the one that ends last, and NSS lists the newer one first, whatever the order.
#
# So a renewal can seem to have failed in one program and be in use in the next, and listing the token with p11tool, which
# also tells the end of each certificate, says that nothing new is there.
#
# Seen with Debian's libsofthsm2 2.6.1-2.1, opensc 0.23.0-0.3+deb12u2, gnutls-bin 3.7.9-2+deb12u7, libp11 0.4.12-0.1 and
# libnss3-tools 2:3.87.1-1+deb12u4; the lines stand at the end.
#
# Needs Debian 12 with the libraries that these packages depend on, apt-get, openssl, gcc, libssl-dev. Fails if it sees
# anything else.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
apt-get download softhsm2=2.6.1-2.1 libsofthsm2=2.6.1-2.1 opensc=0.23.0-0.3+deb12u2 opensc-pkcs11=0.23.0-0.3+deb12u2 \
  gnutls-bin=3.7.9-2+deb12u7 libgnutls30=3.7.9-2+deb12u7 libengine-pkcs11-openssl=0.4.12-0.1 libp11-3=0.4.12-0.1 \
  libnss3-tools=2:3.87.1-1+deb12u4 libnss3=2:3.87.1-1+deb12u4 2>/dev/null >&2
for package in *.deb; do dpkg -x "$package" root; done
rm ./*.deb
libraries=$place/root/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH=$libraries
module=$place/root/usr/lib/softhsm/libsofthsm2.so
bin=$place/root/usr/bin

# The key and its certificates: "old" until 2025, "new" until 2040.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -subj /CN=CA -days 9 2>/dev/null
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out request.pem -subj /CN=user 2>/dev/null
openssl pkcs8 -topk8 -nocrypt -in key.pem -outform DER -out key.der
certificate() {
  printf 'serial = %s\nactivation_date = "%s"\nexpiration_date = "%s"\ncn = user\n' "$2" "$3" "$4" >template
  "$bin/certtool" --generate-certificate --load-request request.pem --load-ca-certificate ca.pem --load-ca-privkey ca.key \
    --template template --outder --outfile "$1.der" 2>/dev/null
}
certificate old 16 "2024-01-01 00:00:00 UTC" "2025-01-01 00:00:00 UTC"
certificate new 32 "2025-01-01 00:00:00 UTC" "2040-01-01 00:00:00 UTC"

mkdir tokens
echo "directories.tokendir = $place/tokens" >softhsm2.conf
export SOFTHSM2_CONF=$place/softhsm2.conf
"$bin/softhsm2-util" --module "$module" --init-token --free --label t --pin 1234 --so-pin 12345678 >/dev/null
tool() { "$bin/pkcs11-tool" --module "$module" "$@" 2>/dev/null; }
tool --login --pin 1234 --write-object key.der --type privkey --id 01 --label user >/dev/null
for name in old new; do
  before=$(ls tokens/*/*.object)
  tool --login --pin 1234 --write-object $name.der --type cert --id 01 --label user >/dev/null
  comm -13 <(echo "$before") <(ls tokens/*/*.object) >$name.file
done

cat >load.c <<'C'
#include <openssl/engine.h>
#include <openssl/pem.h>
int main(void) {
    struct { const char *uri; X509 *certificate; } asked = {"pkcs11:token=t;id=%01", NULL};
    OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL);
    ENGINE *engine = ENGINE_by_id("pkcs11");
    if (!engine || !ENGINE_init(engine) || !ENGINE_ctrl_cmd(engine, "LOAD_CERT_CTRL", 0, &asked, NULL, 1)) return 1;
    return !PEM_write_X509(stdout, asked.certificate);
}
C
gcc -w load.c -o load -lcrypto
cat >engine.cnf <<CNF
openssl_conf = all
[all]
engines = engines
[engines]
pkcs11 = libp11
[libp11]
engine_id = pkcs11
dynamic_path = $libraries/engines-3/libpkcs11.so
MODULE_PATH = $module
init = 0
CNF
mkdir nss
"$bin/certutil" -N -d sql:nss --empty-password
"$bin/modutil" -dbdir sql:nss -add token -libfile "$module" -force >/dev/null 2>&1
echo 1234 >pin

# Which certificate it is, by the serial number.
which() { openssl x509 -noout -serial "$@" | sed 's/serial=10$/old/; s/serial=20$/new/'; }
observe() {
  echo "pkcs11-tool: $(tool --read-object --type cert --id 01 | which -inform DER)"
  echo "p11tool --list-all-certs: $("$bin/p11tool" --provider "$module" --list-all-certs pkcs11:token=t |
    sed -n 's/.*Expires:.*2025$/old/p; s/.*Expires:.*2040$/new/p' | paste -sd' ')"
  echo "p11tool --export: $("$bin/p11tool" --provider "$module" --export 'pkcs11:token=t;id=%01;type=cert' | which)"
  echo "libp11: $(OPENSSL_CONF=engine.cnf ./load | which)"
  echo "certutil: $("$bin/certutil" -L -d sql:nss -h t -n t:user -f pin -a | which)"
}
for first in old new; do
  for name in old new; do
    # A name that comes first, or last.
    file=$(cat $name.file)
    [ $name = $first ] && to=00000000 || to=ffffffff
    to=$(dirname "$file")/$to-0000-0000-0000-000000000000.object
    mv "$file" next-$name
    echo "$to" >$name.file
  done
  for name in old new; do mv next-$name "$(cat $name.file)"; done
  echo "$first first"
  observe
done | tee seen
diff - seen <<'SEEN'
old first
pkcs11-tool: old
p11tool --list-all-certs: old old
p11tool --export: old
libp11: new
certutil: new
new first
pkcs11-tool: new
p11tool --list-all-certs: new new
p11tool --export: new
libp11: new
certutil: new
SEEN
echo "They still differ."
