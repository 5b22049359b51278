#!/usr/bin/env bash
# go.step.sm/crypto 0.92.0 (step, step-ca, step-kms-plugin): a "+" in a PKCS#11 URI is read as a blank, also in the PIN.
#
# RFC 7512 lets "+" stand for itself, in the path and in the query; GnuTLS (p11-kit) and libp11 read it so, and log in with
# `pin-value=12+34`. step's library reads the URI with the rules of web forms, where "+" is a blank: it sends the PIN
# "12 34", which the token counts as a wrong one. A card that allows three tries is locked after three starts of a program
# whose URI and PIN are right, and which work with p11tool or openssl. In `token=a+b` it asks for a token "a b", and in
# `object=o&p`, also allowed, it stops at "&". `%2B` and `%26` are read alike by all.
#
# Seen with Debian's gnutls-bin 3.7.9-2+deb12u7, libp11 0.4.12-0.1, libsofthsm2 2.6.1-2.1 and opensc 0.23.0-0.3+deb12u2, Go
# 1.26; the lines stand at the end.
#
# Needs Debian 12 with the libraries that these packages depend on, apt-get, go, openssl, gcc, libssl-dev, the network.
# Fails if it sees anything else.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
apt-get download softhsm2=2.6.1-2.1 libsofthsm2=2.6.1-2.1 opensc=0.23.0-0.3+deb12u2 opensc-pkcs11=0.23.0-0.3+deb12u2 \
  gnutls-bin=3.7.9-2+deb12u7 libgnutls30=3.7.9-2+deb12u7 libengine-pkcs11-openssl=0.4.12-0.1 libp11-3=0.4.12-0.1 2>/dev/null >&2
for package in *.deb; do dpkg -x "$package" root; done
libraries=$place/root/usr/lib/x86_64-linux-gnu
module=$place/root/usr/lib/softhsm/libsofthsm2.so
bin=$place/root/usr/bin
tool() { LD_LIBRARY_PATH=$libraries "$bin/pkcs11-tool" --module "$module" "$@" 2>/dev/null; }

mkdir step
cat >step/go.mod <<'GO'
module step
go 1.25
require go.step.sm/crypto v0.92.0
GO
cat >step/main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"

	"go.step.sm/crypto/kms/apiv1"
	"go.step.sm/crypto/kms/pkcs11"
	"go.step.sm/crypto/kms/uri"
)

func main() {
	if os.Args[1] == "read" {
		read, err := uri.Parse(os.Args[2])
		if err != nil {
			panic(err)
		}
		fmt.Printf("token %q, object %q, PIN %q\n", read.Get("token"), read.Get("object"), read.Pin())
		return
	}
	token, err := pkcs11.New(context.Background(), apiv1.Options{URI: os.Args[1]})
	if err != nil {
		fmt.Println(err)
		return
	}
	token.Close()
	fmt.Println("logged in")
}
GO
(cd step && go mod tidy 2>/dev/null && go build -o step .)

cat >sign.c <<'C'
#include <openssl/engine.h>
#include <openssl/evp.h>
#include <stdio.h>
int main(int count, char **arguments) {
    OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL);
    ENGINE *engine = ENGINE_by_id("pkcs11");
    if (!engine || !ENGINE_init(engine)) return 1;
    puts(ENGINE_load_private_key(engine, arguments[1], NULL, NULL) ? "logged in, key found" : "no key");
    return 0;
}
C
gcc -w sign.c -o sign -lcrypto
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

mkdir tokens
echo "directories.tokendir = $place/tokens" >softhsm2.conf
export SOFTHSM2_CONF=$place/softhsm2.conf
"$bin/softhsm2-util" --module "$module" --init-token --free --label t --pin 12+34 --so-pin 12345678 >/dev/null
tool --login --pin 12+34 --keypairgen --key-type EC:prime256v1 --id 01 --label user >/dev/null
wrong_pins() { tool --list-slots | grep -q 'PIN count low' && echo "a wrong PIN was counted" || echo "no wrong PIN was counted"; }
{
  uri='pkcs11:token=t;id=%01;type=private?pin-value=12+34'
  echo "p11tool: $("$bin/p11tool" --provider "$module" --login --list-all "$uri" </dev/null 2>&1 | grep -c 'Type: Private key') private key; $(wrong_pins)"
  echo "libp11: $(LD_LIBRARY_PATH=$libraries OPENSSL_CONF=engine.cnf ./sign "$uri" </dev/null 2>&1); $(wrong_pins)"
  echo "step: $(step/step "pkcs11:module-path=$module;token=t?pin-value=12%2B34"); $(wrong_pins) (with %2B)"
  echo "step: $(step/step "pkcs11:module-path=$module;token=t?pin-value=12+34"); $(wrong_pins)"
  echo "step reads: $(step/step read 'pkcs11:token=a+b;object=o&p?pin-value=12+34')"
} | tee seen
diff - seen <<'SEEN'
p11tool: 1 private key; no wrong PIN was counted
libp11: logged in, key found; no wrong PIN was counted
step: logged in; no wrong PIN was counted (with %2B)
step: error initializing PKCS#11: failed to log into long term session: pkcs11: 0xA0: CKR_PIN_INCORRECT; a wrong PIN was counted
step reads: token "a b", object "o", PIN "12 34"
SEEN
echo "step still reads a blank."
