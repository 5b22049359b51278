#!/usr/bin/env bash
# keytool of JDK 17 on a token with two certificates of one key: -delete reports an error, and the private key is gone.
#
# An old and a renewed certificate lie beside a key, with its CKA_ID and label, as a renewal leaves them until the old one
# is removed. keytool shows one entry, with one of the two; its alias is no longer the label but label, issuer and serial
# number. `keytool -delete` of that entry ends with "invalid KeyStore state: found 2 certificates sharing CKA_ID". One reads
# that as "nothing was done". But the private key was destroyed before the certificates were counted: both certificates and
# the public key are still there, the key, which a token can't give back, isn't.
# Who wants to remove the expired certificate with keytool, as its listing shows that one, loses the key that both belong to.
#
# Seen with Debian's openjdk-17-jre-headless 17.0.21.1+2-1~deb12u1, libsofthsm2 2.6.1-2.1 and opensc 0.23.0-0.3+deb12u2; a
# JDK 25 did the same, and there `keytool -list` showed now one of the two, now the other, with nothing changed in between.
# The lines stand at the end.
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
for number in 16 32; do
  openssl x509 -req -in request.pem -force_pubkey key.pem -CA ca.pem -CAkey ca.key -set_serial $number -days $((number * 9)) \
    -out $number.pem 2>/dev/null
  openssl x509 -in $number.pem -outform DER -out $number.der
done
for number in 16 32; do tool --write-object $number.der --type cert --id 01 --label user >/dev/null; done

objects() { tool --list-objects | sed -n 's/^\([A-Z][a-z]*\) .*Object.*/\1/p' | sort | uniq -c | awk '{ print $2 " " $1 }' | paste -sd, ; }
# Which of the two the entry has, and so its alias, is chosen anew by each keytool.
delete_entry() {
  for number in 16 32 16 32 16 32 16 32; do
    { keystore -delete -alias "user/cn=ca/$number" || true; } | grep -v 'does not exist' >words && break
  done
  sed 's/^keytool error: //' words
}
{
  echo "objects: $(objects)"
  echo "-list: $(keystore -list | sed -n 's/^Your keystore/keystore/p; s,^\(user/cn=ca/\)[136][26]\,,\1SERIAL,p' | sed 's/ *$//' | paste -sd: )"
  echo "-delete: $(delete_entry)"
  echo "objects: $(objects)"
} | tee seen
diff - seen <<'SEEN'
objects: Certificate 2,Private 1,Public 1
-list: keystore contains 1 entry:user/cn=ca/SERIAL PrivateKeyEntry,
-delete: java.security.KeyStoreException: invalid KeyStore state: found 2 certificates sharing CKA_ID 0x01
objects: Certificate 2,Public 1
SEEN
echo "keytool still destroys the key and says otherwise."
