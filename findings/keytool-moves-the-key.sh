#!/usr/bin/env bash
# keytool of JDK 17 on a token: importing a renewed certificate gives the private key another CKA_ID.
#
# A key that another program has made lies on the token as CKA_ID 01, label "user": private key, public key, certificate.
# `keytool -importcert -alias user` with the certificate that replaces the old one says that it was installed. It has also
# changed the private key: its CKA_ID is now the alias, in ASCII. The public key stays where it was, so that the halves of
# the pair no longer belong together, and whatever names the key by its CKA_ID (an `id=%01` in a URI, `--id 01`) finds a
# public key and nothing to sign with. The issuer's certificate, which keytool wants in the reply, is left on the token too,
# under a CKA_ID that is a text of some sixty bytes. One expects an import of a certificate to touch certificates; keytool
# lists the same alias before and after, and Java sees no difference.
#
# Seen with Debian's openjdk-17-jre-headless 17.0.21.1+2-1~deb12u1, libsofthsm2 2.6.1-2.1 and opensc 0.23.0-0.3+deb12u2; a
# JDK 25 did the same. The lines stand at the end.
#
# Needs Debian 12 with the libraries that these packages depend on, apt-get, openssl. Fails if it sees anything else.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
apt-get download openjdk-17-jre-headless=17.0.21.1+2-1~deb12u1 softhsm2=2.6.1-2.1 libsofthsm2=2.6.1-2.1 \
  opensc=0.23.0-0.3+deb12u2 opensc-pkcs11=0.23.0-0.3+deb12u2 2>/dev/null >&2
for package in *.deb; do dpkg -x "$package" root; done
rm ./*.deb
# The JDK's settings are links to /etc.
find root -lname '/etc/java*' | while read -r link; do ln -sf "$place/root$(readlink "$link")" "$link"; done
export LD_LIBRARY_PATH=$place/root/usr/lib/x86_64-linux-gnu
library=$place/root/usr/lib/softhsm/libsofthsm2.so

mkdir tokens
echo "directories.tokendir = $place/tokens" >softhsm2.conf
export SOFTHSM2_CONF=$place/softhsm2.conf
root/usr/bin/softhsm2-util --module "$library" --init-token --free --label t --pin 1234 --so-pin 12345678 >/dev/null
printf 'name = t\nlibrary = %s\nslotListIndex = 0\n' "$library" >java.cfg

tool() { root/usr/bin/pkcs11-tool --module "$library" --login --pin 1234 "$@" 2>/dev/null; }
keystore() {
  root/usr/lib/jvm/java-17-openjdk-amd64/bin/keytool "$@" -keystore NONE -storetype PKCS11 -storepass 1234 \
    -providerClass sun.security.pkcs11.SunPKCS11 -providerArg java.cfg 2>&1
}
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -subj /CN=CA -days 900 2>/dev/null
tool --keypairgen --key-type EC:prime256v1 --id 01 --label user >/dev/null
tool --read-object --type pubkey --id 01 --output-file key.der >/dev/null
openssl pkey -pubin -inform DER -in key.der -out key.pem
# The request's own key doesn't matter, as the certificates get the token's.
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout other.key -out request.pem -subj /CN=user 2>/dev/null
for days in 30 400; do
  openssl x509 -req -in request.pem -force_pubkey key.pem -CA ca.pem -CAkey ca.key -set_serial $days -days $days \
    -out $days.pem 2>/dev/null
done
openssl x509 -in 30.pem -outform DER -out 30.der
tool --write-object 30.der --type cert --id 01 --label user >/dev/null
cat 400.pem ca.pem >reply.pem

# The CKA_ID of each object, in the order of their names.
objects() {
  tool --list-objects | awk '
    /Object/ { name = $1 }
    /subject:/ { subject = $NF; sub(/.*=/, "", subject); name = name " of " subject }
    /ID:/ { id = $2 == "" ? "none" : length($2) > 40 ? "a text" : $2; print "  " name ": " id }' | sort
}
key_found() {
  head -c 32 /dev/zero >digest
  tool --sign --mechanism ECDSA --id 01 --input-file digest --output-file signature >/dev/null && echo yes || echo no
}
java_has() { keystore -list -v | sed -n 's/^Alias name: /alias /p; s/^Serial number: /serial number /p' | head -2 | paste -sd, ; }
{
  echo "before:"
  objects
  echo "  a key to sign with is found as 01: $(key_found)"
  echo "  keytool: $(java_has)"
  keystore -importcert -noprompt -alias user -file reply.pem
  echo "after:"
  objects
  echo "  a key to sign with is found as 01: $(key_found)"
  echo "  keytool: $(java_has)"
} | tee seen
diff - seen <<'SEEN'
before:
  Certificate of user: 01
  Private: 01
  Public: 01
  a key to sign with is found as 01: yes
  keytool: alias user,serial number 1e
Certificate reply was installed in keystore
after:
  Certificate of CA: a text
  Certificate of user: 75736572
  Private: 75736572
  Public: 01
  a key to sign with is found as 01: no
  keytool: alias user,serial number 190
SEEN
echo "keytool still moves the key."
