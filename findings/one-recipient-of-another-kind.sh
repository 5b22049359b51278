#!/usr/bin/env bash
# CMS EnvelopedData: a recipient of another kind makes the message unreadable to those who could read it before.
#
# A message for several recipients (a secret for several machines, say) has one RecipientInfo for each, and a reader is to
# look for its own. pyca/cryptography, node-forge and smallstep/pkcs7 (step-ca's SCEP) read only the oldest of the five
# kinds, an RSA key named by issuer and serial number; that isn't the surprise. But they decode the whole set with that
# one form in mind: as soon as another recipient has an elliptic key, or a password, the RSA recipients, for whom nothing
# has changed, fail too, with an error of the decoder that names no cause. Bouncy Castle and OpenSSL find their recipient
# in each of them. So the first machine with an EC certificate breaks the others. Another RSA recipient with OAEP does no
# harm: it is the form that counts.
#
# Seen with cryptography 50.0.2, node-forge 1.4.3, github.com/smallstep/pkcs7 0.2.3 and Debian's libbcpkix-java 1.72-2, on
# messages of OpenSSL 3.0; the lines stand at the end.
#
# Needs Debian 12, apt-get, openssl, python3 with venv, node, npm, go, a JDK of 17 or later, the network. Fails if it sees
# anything else.
set -euo pipefail
place=$(mktemp -d)
trap 'chmod -R u+w "$place"; rm -rf "$place"' EXIT
cd "$place"
apt-get download libbcprov-java=1.72-2 libbcpkix-java=1.72-2 libbcutil-java=1.72-2 2>/dev/null >&2
for package in *.deb; do dpkg -x "$package" root; done
python3 -m venv python
python/bin/pip install --quiet --disable-pip-version-check cryptography==50.0.2
npm install --silent --no-audit --no-fund --prefix node node-forge@1.4.3 >/dev/null

certificate() { openssl req -x509 -nodes -keyout "$1.key" -out "$1.pem" -subj "/CN=$1" -days 9 "${@:2}" 2>/dev/null; }
certificate reader -newkey rsa:2048
certificate rsa -newkey rsa:2048
certificate ec -newkey ec -pkeyopt ec_paramgen_curve:P-256
echo -n secret >text
envelop() { openssl cms -encrypt -binary -aes-256-cbc -in text -outform DER -out "$1" "${@:2}"; }
envelop alone reader.pem
envelop +rsa reader.pem rsa.pem
envelop +oaep -recip rsa.pem -keyopt rsa_padding_mode:oaep -recip reader.pem
envelop +ec reader.pem ec.pem
envelop +password -pwri_password word reader.pem

cat >read.py <<'PYTHON'
import sys
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key, pkcs7
key = load_pem_private_key(open("reader.key", "rb").read(), None)
certificate = x509.load_pem_x509_certificate(open("reader.pem", "rb").read())
for name in sys.argv[1:]:
    try:
        print("cryptography", name, pkcs7.pkcs7_decrypt_der(open(name, "rb").read(), certificate, key, []).decode())
    except ValueError as error:
        print("cryptography", name, "error:", str(error).split(",")[0])
PYTHON
cat >read.js <<'NODE'
const fs = require('fs'), forge = require('./node/node_modules/node-forge');
const certificate = forge.pki.certificateFromPem(fs.readFileSync('reader.pem', 'utf8'));
const key = forge.pki.privateKeyFromPem(fs.readFileSync('reader.key', 'utf8'));
for (const name of process.argv.slice(2)) {
  try {
    const message = forge.pkcs7.messageFromAsn1(forge.asn1.fromDer(fs.readFileSync(name, 'binary')));
    message.decrypt(message.findRecipient(certificate), key);
    console.log('node-forge', name, message.content.toString());
  } catch (error) {
    console.log('node-forge', name, 'error:', error.message);
  }
}
NODE
mkdir go
cat >go/go.mod <<'GO'
module read
go 1.24
require github.com/smallstep/pkcs7 v0.2.3
GO
cat >go/main.go <<'GO'
package main

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"

	"github.com/smallstep/pkcs7"
)

func block(name string) []byte {
	text, err := os.ReadFile(name)
	if err != nil {
		panic(err)
	}
	found, _ := pem.Decode(text)
	return found.Bytes
}

func main() {
	certificate, err := x509.ParseCertificate(block("reader.pem"))
	if err != nil {
		panic(err)
	}
	key, err := x509.ParsePKCS8PrivateKey(block("reader.key"))
	if err != nil {
		panic(err)
	}
	for _, name := range os.Args[1:] {
		der, err := os.ReadFile(name)
		if err != nil {
			panic(err)
		}
		message, err := pkcs7.Parse(der)
		if err != nil {
			fmt.Println("smallstep/pkcs7", name, "error:", err)
			continue
		}
		text, err := message.Decrypt(certificate, key)
		if err != nil {
			panic(err)
		}
		fmt.Println("smallstep/pkcs7", name, string(text))
	}
}
GO
export GOMODCACHE=$place/modules
(cd go && go mod tidy 2>/dev/null && go build -o ../read .)
cat >Read.java <<'JAVA'
import java.nio.file.*;
import java.security.*;
import java.security.cert.*;
import java.security.spec.*;
import java.util.Base64;
import org.bouncycastle.cms.*;
import org.bouncycastle.cms.jcajce.*;

class Read {
    public static void main(String[] names) throws Exception {
        Security.addProvider(new org.bouncycastle.jce.provider.BouncyCastleProvider());
        byte[] der = Base64.getMimeDecoder().decode(Files.readString(Path.of("reader.key")).replaceAll("-----.*", ""));
        PrivateKey key = KeyFactory.getInstance("RSA").generatePrivate(new PKCS8EncodedKeySpec(der));
        X509Certificate certificate =
            (X509Certificate) CertificateFactory.getInstance("X.509").generateCertificate(Files.newInputStream(Path.of("reader.pem")));
        for (String name : names) {
            CMSEnvelopedData message = new CMSEnvelopedData(Files.readAllBytes(Path.of(name)));
            RecipientInformation own = message.getRecipientInfos().get(new JceKeyTransRecipientId(certificate));
            System.out.println("Bouncy Castle " + name + " " + new String(own.getContent(new JceKeyTransEnvelopedRecipient(key))));
        }
    }
}
JAVA
messages=(alone +rsa +oaep +ec +password)
{
  for name in "${messages[@]}"; do
    echo "OpenSSL $name $(openssl cms -decrypt -binary -in "$name" -inform DER -recip reader.pem -inkey reader.key)"
  done
  java -cp "root/usr/share/java/bcprov.jar:root/usr/share/java/bcpkix.jar:root/usr/share/java/bcutil.jar" Read.java "${messages[@]}"
  python/bin/python read.py "${messages[@]}"
  node read.js "${messages[@]}"
  ./read "${messages[@]}"
} | tee seen
diff - seen <<'SEEN'
OpenSSL alone secret
OpenSSL +rsa secret
OpenSSL +oaep secret
OpenSSL +ec secret
OpenSSL +password secret
Bouncy Castle alone secret
Bouncy Castle +rsa secret
Bouncy Castle +oaep secret
Bouncy Castle +ec secret
Bouncy Castle +password secret
cryptography alone secret
cryptography +rsa secret
cryptography +oaep secret
cryptography +ec error: error parsing asn1 value: ParseError { kind: UnexpectedTag { actual: Tag { value: 1
cryptography +password error: error parsing asn1 value: ParseError { kind: UnexpectedTag { actual: Tag { value: 3
node-forge alone secret
node-forge +rsa secret
node-forge +oaep secret
node-forge +ec error: Cannot read PKCS#7 RecipientInfo. ASN.1 object is not an PKCS#7 RecipientInfo.
node-forge +password error: Cannot read PKCS#7 RecipientInfo. ASN.1 object is not an PKCS#7 RecipientInfo.
smallstep/pkcs7 alone secret
smallstep/pkcs7 +rsa secret
smallstep/pkcs7 +oaep secret
smallstep/pkcs7 +ec error: asn1: structure error: sequence tag mismatch
smallstep/pkcs7 +password error: asn1: structure error: sequence tag mismatch
SEEN
echo "One recipient of another kind still spoils the message for the others."
