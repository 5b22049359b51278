#!/usr/bin/env bash
# NSS makes an Ed25519 signature only into a buffer of exactly 64 bytes, and doesn't say so when it is asked.
#
# PKCS#11 lets a caller of C_Sign have a larger buffer than the signature (section 5.2), and lets it ask for the length
# first, with a null pointer. NSS 3.110 answers that question with 144, the longest signature that it knows of any curve;
# C_Sign into 144 bytes is CKR_ARGUMENTS_BAD (7) then, as it is with every room but 64. So whoever follows the standard
# has no signature, in either way, with a key that NSS has made and lists CKM_EDDSA for. An ECDSA key on P-256 beside it
# is also said to need 144, and signs into each room from 64 on.
#
# Seen with Debian 13's libnss3 and libnss3-tools 2:3.110-1+deb13u5; the lines stand at the end.
#
# Needs a Debian with apt-get, gcc and the headers of libp11-kit-dev; the release's packages are unpacked into a temporary
# folder and run with their own C library. Fails if it sees anything else.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
mkdir -p lists/partial cache/archives/partial root
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' | head -n 1) trixie main" >sources
get() { apt-get -qq -o APT::Sandbox::User=root -o Dir::Etc::sourcelist="$place/sources" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$place/lists" -o Dir::Cache="$place/cache" "$@"; }
get update
get download libnss3=2:3.110-1+deb13u5 libnss3-tools=2:3.110-1+deb13u5 libnspr4=2:4.36-1 libsqlite3-0=3.46.1-7+deb13u2 zlib1g=1:1.3.dfsg+really1.3.1-1+deb13u1 libc6=2.41-12+deb13u5 2>/dev/null >&2
for package in *.deb; do dpkg -x "$package" root; done
libraries=$place/root/usr/lib/x86_64-linux-gnu
run() { "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries:$libraries/nss" "$@"; }

cat >rooms.c <<'C'
#include <dlfcn.h>
#include <p11-kit/pkcs11.h>
#include <stdio.h>
#include <string.h>

static CK_FUNCTION_LIST *p11;
static CK_SESSION_HANDLE session;

static void sign(const char *name, CK_KEY_TYPE type, CK_MECHANISM_TYPE generation, CK_MECHANISM_TYPE signing,
                 CK_BYTE *curve, CK_ULONG length, CK_ULONG digest) {
  CK_BBOOL yes = CK_TRUE, no = CK_FALSE;
  CK_ATTRIBUTE public[] = {{CKA_KEY_TYPE, &type, sizeof type}, {CKA_EC_PARAMS, curve, length}, {CKA_TOKEN, &no, 1}};
  CK_ATTRIBUTE private[] = {{CKA_KEY_TYPE, &type, sizeof type}, {CKA_SIGN, &yes, 1}, {CKA_TOKEN, &no, 1}};
  CK_MECHANISM generate = {generation, NULL, 0}, mechanism = {signing, NULL, 0};
  CK_OBJECT_HANDLE verifier, key;
  CK_BYTE signature[4096], message[32] = "what is signed";
  printf("%s: C_GenerateKeyPair %lu\n", name, p11->C_GenerateKeyPair(session, &generate, public, 3, private, 3, &verifier, &key));
  CK_ULONG asked = 0;
  p11->C_SignInit(session, &mechanism, key);
  CK_RV answer = p11->C_Sign(session, message, digest, NULL, &asked);
  printf("  no buffer: C_Sign %lu, length %lu\n", answer, asked);
  p11->C_Sign(session, message, digest, signature, &asked);
  CK_ULONG rooms[] = {64, 65, 72, 144, 4096};
  for (int i = 0; i < 5; i++) {
    CK_ULONG room = rooms[i];
    CK_RV begun = p11->C_SignInit(session, &mechanism, key);
    answer = p11->C_Sign(session, message, digest, signature, &room);
    printf("  room for %lu: C_SignInit %lu, C_Sign %lu\n", rooms[i], begun, answer);
  }
}

int main(int count, char **words) {
  void *library = dlopen(words[1], RTLD_NOW);
  if (count != 3 || library == NULL) return puts(dlerror());
  CK_C_GetFunctionList list = (CK_C_GetFunctionList)dlsym(library, "C_GetFunctionList");
  CK_C_INITIALIZE_ARGS arguments = {.flags = CKF_OS_LOCKING_OK, .pReserved = words[2]};
  list(&p11);
  p11->C_Initialize(&arguments);
  p11->C_OpenSession(2, CKF_SERIAL_SESSION | CKF_RW_SESSION, NULL, NULL, &session);
  printf("C_Login %lu\n", p11->C_Login(session, CKU_USER, (CK_UTF8CHAR *)"12345678", 8));
  CK_BYTE ed25519[] = {6, 3, 0x2b, 0x65, 0x70}, p256[] = {6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7};
  sign("Ed25519", 0x40, 0x1055, 0x1057, ed25519, sizeof ed25519, 14);
  sign("P-256", CKK_EC, CKM_EC_KEY_PAIR_GEN, CKM_ECDSA, p256, sizeof p256, 32);
  return 0;
}
C
gcc -I/usr/include/p11-kit-1 -o rooms rooms.c -ldl
mkdir db
echo 12345678 >pin
run root/usr/bin/certutil -N -d sql:db -f pin
run ./rooms "$libraries/libsoftokn3.so" "configDir='sql:$place/db' certPrefix='' keyPrefix='' secmod=''" | tee seen
diff - seen <<'SEEN'
C_Login 0
Ed25519: C_GenerateKeyPair 0
  no buffer: C_Sign 0, length 144
  room for 64: C_SignInit 0, C_Sign 0
  room for 65: C_SignInit 0, C_Sign 7
  room for 72: C_SignInit 0, C_Sign 7
  room for 144: C_SignInit 0, C_Sign 7
  room for 4096: C_SignInit 0, C_Sign 7
P-256: C_GenerateKeyPair 0
  no buffer: C_Sign 0, length 144
  room for 64: C_SignInit 0, C_Sign 0
  room for 65: C_SignInit 0, C_Sign 0
  room for 72: C_SignInit 0, C_Sign 0
  room for 144: C_SignInit 0, C_Sign 0
  room for 4096: C_SignInit 0, C_Sign 0
SEEN
echo "It still signs into 64 bytes alone."
