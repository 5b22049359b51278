#!/usr/bin/env bash
# NSS's certutil and GnuTLS's p11tool write a certificate to a token that has its key, and the two don't meet.
#
# The key was made by another program, as CKA_ID 01. `certutil -A -h TOKEN` and `p11tool --write --load-certificate` don't
# look for it: they give the certificate a CKA_ID of their own, a hash of the public key, and say nothing. As others pair
# key and certificate by CKA_ID, the certificate then has no key, also for NSS itself, which has just written it:
# `certutil -L` shows no "u", though `certutil -K` lists the key of that certificate. With the same certificate under
# CKA_ID 01 beside it, NSS knows the key. p11tool has `--id` for it, certutil -A has no such option. A renewal by certutil,
# with a key that a PKCS#11 tool has numbered, thus ends with a new certificate that isn't used, and the old one in use
# until it expires.
#
# Seen with Debian's libnss3-tools 2:3.87.1-1+deb12u4, gnutls-bin 3.7.9-2+deb12u7, libsofthsm2 2.6.1-2.1 and opensc
# 0.23.0-0.3+deb12u2; the lines stand at the end.
#
# Needs Debian 12 with the libraries that these packages depend on, apt-get, openssl. Fails if it sees anything else.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
apt-get download softhsm2=2.6.1-2.1 libsofthsm2=2.6.1-2.1 opensc=0.23.0-0.3+deb12u2 opensc-pkcs11=0.23.0-0.3+deb12u2 \
  gnutls-bin=3.7.9-2+deb12u7 libgnutls30=3.7.9-2+deb12u7 \
  libnss3-tools=2:3.87.1-1+deb12u4 libnss3=2:3.87.1-1+deb12u4 2>/dev/null >&2
for package in *.deb; do dpkg -x "$package" root; done
export LD_LIBRARY_PATH=$place/root/usr/lib/x86_64-linux-gnu
module=$place/root/usr/lib/softhsm/libsofthsm2.so
bin=$place/root/usr/bin

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -subj /CN=CA -days 900 2>/dev/null
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out request.pem -subj /CN=user 2>/dev/null
openssl pkcs8 -topk8 -nocrypt -in key.pem -outform DER -out key.der
for number in 1 2; do
  openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -set_serial $number -days $number"00" -out $number.pem 2>/dev/null
  openssl x509 -in $number.pem -outform DER -out $number.der
done
openssl pkey -in key.pem -pubout -outform DER -out public.der
point=$(tail -c 65 public.der | openssl dgst -sha1 -r | cut -d' ' -f1)
whole=$(openssl dgst -sha1 -r public.der | cut -d' ' -f1)

export SOFTHSM2_CONF=$place/softhsm2.conf
tool() { "$bin/pkcs11-tool" --module "$module" --login --pin 1234 "$@" 2>/dev/null; }
certutil() { "$bin/certutil" "$@" -d sql:nss -h t -f pin 2>/dev/null; }
# A new token with the key alone, and an NSS directory that knows the token.
begin() {
  rm -rf tokens nss
  mkdir tokens nss
  echo "directories.tokendir = $place/tokens" >softhsm2.conf
  "$bin/softhsm2-util" --module "$module" --init-token --free --label t --pin 1234 --so-pin 12345678 >/dev/null
  tool --write-object key.der --type privkey --id 01 --label user >/dev/null
  "$bin/certutil" -N -d sql:nss --empty-password
  "$bin/modutil" -dbdir sql:nss -add token -libfile "$module" -force >/dev/null 2>&1
  echo 1234 >pin
}
show() {
  echo "$1"
  tool --list-objects | awk '/Object/ { name = $1 } /label:/ { label = $2 } /ID:/ { print "  " name " " label ": " $2 }' |
    sed "s/$point/SHA-1 of the public point/; s/$whole/SHA-1 of the SubjectPublicKeyInfo/" | sort
  echo "  certutil -L: $(certutil -L | sed -n 's/^t:\([A-Za-z]*\)  *\(.*[^ ]\) *$/\1 \2/p' |
    sed 's/^by[A-Z][a-z]* /the certificate /' | sort | paste -sd';')"
}
{
  begin
  certutil -A -n byNss -t ,, -i 1.pem
  show "written by certutil"
  echo "  certutil -K: $(certutil -K | sed -n 's/.*> *ec *\([0-9a-f]*\) *\(.*\)/\1 \2/p')"
  tool --write-object 1.der --type cert --id 01 --label byTool >/dev/null
  show "the same certificate by pkcs11-tool --id 01"
  begin
  tool --write-object 1.der --type cert --id 01 --label old >/dev/null
  certutil -A -n renewed -t ,, -i 2.pem
  show "an old one by pkcs11-tool --id 01, renewed by certutil"
  begin
  GNUTLS_PIN=1234 "$bin/p11tool" --provider "$module" --login --write --load-certificate 1.pem --label byGnutls pkcs11:token=t >/dev/null 2>&1
  show "written by p11tool"
} | tee seen
diff - seen <<'SEEN'
written by certutil
  Certificate byNss: SHA-1 of the public point
  Private user: 01
  certutil -L: the certificate ,,
  certutil -K: 01 user
the same certificate by pkcs11-tool --id 01
  Certificate byNss: SHA-1 of the public point
  Certificate byTool: 01
  Private user: 01
  certutil -L: the certificate u,u,u
an old one by pkcs11-tool --id 01, renewed by certutil
  Certificate old: 01
  Certificate renewed: SHA-1 of the public point
  Private user: 01
  certutil -L: old u,u,u;renewed ,,
written by p11tool
  Certificate byGnutls: SHA-1 of the SubjectPublicKeyInfo
  Private user: 01
  certutil -L: the certificate ,,
SEEN
echo "They still write it away from its key."
