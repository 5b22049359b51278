/* The bare minimum: the PKCS#11 calls without which there is no signature, no certificate, or nothing opened.
 *
 * scripts/bench measures the program against this. No error is explained, nothing is checked beyond
 * return values, nothing is freed: what is left is the module's own work, and starting a process.
 *
 *   floor sign|cert|decrypt|derive LIBRARY SLOT-ID OBJECT-ID PIN >answer        (OBJECT-ID: one byte, decimal)
 *   floor sessions LIBRARY SLOT-ID OBJECT-ID PIN COUNT      so many signatures of a JWT, in eight sessions at the same
 *                                                           time; prints how many there were in a second
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <p11-kit-1/p11-kit/pkcs11.h>

static void must(CK_RV value, const char *call) {
  if (value != CKR_OK) {
    fprintf(stderr, "floor: %s: 0x%lx\n", call, value);
    exit(1);
  }
}

static CK_OBJECT_HANDLE find(CK_FUNCTION_LIST *p11, CK_SESSION_HANDLE session,
                             CK_OBJECT_CLASS class, CK_BYTE id) {
  CK_ATTRIBUTE wanted[] = {{CKA_CLASS, &class, sizeof class}, {CKA_ID, &id, sizeof id}};
  CK_OBJECT_HANDLE object;
  CK_ULONG count;
  must(p11->C_FindObjectsInit(session, wanted, 2), "C_FindObjectsInit");
  must(p11->C_FindObjects(session, &object, 1, &count), "C_FindObjects");
  must(p11->C_FindObjectsFinal(session), "C_FindObjectsFinal");
  if (count == 0) {
    fputs("floor: no such object\n", stderr);
    exit(1);
  }
  return object;
}

/* RSA-PSS over a SHA-256 digest, with a salt as long as the digest. */
static CK_ULONG sign(CK_FUNCTION_LIST *p11, CK_SESSION_HANDLE session, CK_BYTE id, char *pin,
                     CK_BYTE *signature, CK_ULONG length) {
  CK_BYTE digest[32];
  memset(digest, 0x5a, sizeof digest);
  CK_RSA_PKCS_PSS_PARAMS pss = {CKM_SHA256, CKG_MGF1_SHA256, sizeof digest};
  CK_MECHANISM mechanism = {CKM_RSA_PKCS_PSS, &pss, sizeof pss};
  must(p11->C_Login(session, CKU_USER, (CK_UTF8CHAR *)pin, strlen(pin)), "C_Login");
  CK_OBJECT_HANDLE key = find(p11, session, CKO_PRIVATE_KEY, id);
  must(p11->C_SignInit(session, &mechanism, key), "C_SignInit");
  must(p11->C_Sign(session, digest, sizeof digest, signature, &length), "C_Sign");
  return length;
}

/* Of any block: RSA takes as long for each. */
static CK_ULONG decrypt(CK_FUNCTION_LIST *p11, CK_SESSION_HANDLE session, CK_BYTE id, char *pin,
                        CK_BYTE *answer, CK_ULONG length) {
  CK_BYTE block[256];
  memset(block, 0x5a, sizeof block);
  CK_MECHANISM mechanism = {CKM_RSA_X_509, NULL, 0};
  must(p11->C_Login(session, CKU_USER, (CK_UTF8CHAR *)pin, strlen(pin)), "C_Login");
  CK_OBJECT_HANDLE key = find(p11, session, CKO_PRIVATE_KEY, id);
  must(p11->C_DecryptInit(session, &mechanism, key), "C_DecryptInit");
  must(p11->C_Decrypt(session, block, sizeof block, answer, &length), "C_Decrypt");
  return length;
}

/* With the generator of P-256. */
static CK_ULONG derive(CK_FUNCTION_LIST *p11, CK_SESSION_HANDLE session, CK_BYTE id, char *pin,
                       CK_BYTE *answer, CK_ULONG length) {
  CK_BYTE point[] =
      "\x04\x6b\x17\xd1\xf2\xe1\x2c\x42\x47\xf8\xbc\xe6\xe5\x63\xa4\x40\xf2\x77\x03\x7d\x81\x2d"
      "\xeb\x33\xa0\xf4\xa1\x39\x45\xd8\x98\xc2\x96\x4f\xe3\x42\xe2\xfe\x1a\x7f\x9b\x8e\xe7\xeb"
      "\x4a\x7c\x0f\x9e\x16\x2b\xce\x33\x57\x6b\x31\x5e\xce\xcb\xb6\x40\x68\x37\xbf\x51\xf5";
  CK_ECDH1_DERIVE_PARAMS parameters = {CKD_NULL, 0, NULL, 65, point};
  CK_MECHANISM mechanism = {CKM_ECDH1_DERIVE, &parameters, sizeof parameters};
  CK_OBJECT_CLASS class = CKO_SECRET_KEY;
  CK_KEY_TYPE type = CKK_GENERIC_SECRET;
  CK_BBOOL no = CK_FALSE, yes = CK_TRUE;
  CK_ULONG secret = 32;
  CK_ATTRIBUTE template[] = {
      {CKA_CLASS, &class, sizeof class},  {CKA_KEY_TYPE, &type, sizeof type},
      {CKA_TOKEN, &no, sizeof no},        {CKA_SENSITIVE, &no, sizeof no},
      {CKA_EXTRACTABLE, &yes, sizeof yes}, {CKA_VALUE_LEN, &secret, sizeof secret}};
  CK_ATTRIBUTE value = {CKA_VALUE, answer, length};
  CK_OBJECT_HANDLE derived;
  must(p11->C_Login(session, CKU_USER, (CK_UTF8CHAR *)pin, strlen(pin)), "C_Login");
  CK_OBJECT_HANDLE key = find(p11, session, CKO_PRIVATE_KEY, id);
  must(p11->C_DeriveKey(session, &mechanism, key, template, 6, &derived), "C_DeriveKey");
  must(p11->C_GetAttributeValue(session, derived, &value, 1), "C_GetAttributeValue");
  must(p11->C_DestroyObject(session, derived), "C_DestroyObject");
  return value.ulValueLen;
}

static CK_ULONG certificate(CK_FUNCTION_LIST *p11, CK_SESSION_HANDLE session, CK_BYTE id, char *pin,
                            CK_BYTE *der, CK_ULONG length) {
  (void)pin;
  CK_ATTRIBUTE value = {CKA_VALUE, der, length};
  CK_OBJECT_HANDLE object = find(p11, session, CKO_CERTIFICATE, id);
  must(p11->C_GetAttributeValue(session, object, &value, 1), "C_GetAttributeValue");
  return value.ulValueLen;
}

/* What the threads of `sessions` share. */
static struct {
  CK_FUNCTION_LIST *p11;
  CK_SLOT_ID slot;
  CK_BYTE id;
  atomic_long left;
} shared;

/* As RS256 or ES256 sign a digest, whichever the key is for. */
static void *sign_in_session(void *none) {
  CK_FUNCTION_LIST *p11 = shared.p11;
  CK_SESSION_HANDLE session;
  CK_KEY_TYPE type;
  CK_ATTRIBUTE value = {CKA_KEY_TYPE, &type, sizeof type};
  CK_BYTE digest[51] = "\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20";
  CK_BYTE signature[1024];
  must(p11->C_OpenSession(shared.slot, CKF_SERIAL_SESSION, NULL, NULL, &session), "C_OpenSession");
  CK_OBJECT_HANDLE key = find(p11, session, CKO_PRIVATE_KEY, shared.id);
  must(p11->C_GetAttributeValue(session, key, &value, 1), "C_GetAttributeValue");
  CK_MECHANISM mechanism = {type == CKK_RSA ? CKM_RSA_PKCS : CKM_ECDSA, NULL, 0};
  CK_ULONG input = type == CKK_RSA ? 51 : 32;
  while (atomic_fetch_sub(&shared.left, 1) > 0) {
    CK_ULONG length = sizeof signature;
    must(p11->C_SignInit(session, &mechanism, key), "C_SignInit");
    must(p11->C_Sign(session, digest, input, signature, &length), "C_Sign");
  }
  return none;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void sign_in_sessions(CK_FUNCTION_LIST *p11, CK_SLOT_ID slot, CK_BYTE id, char *pin, long count) {
  pthread_t threads[8];
  CK_SESSION_HANDLE session;
  must(p11->C_OpenSession(slot, CKF_SERIAL_SESSION, NULL, NULL, &session), "C_OpenSession");
  must(p11->C_Login(session, CKU_USER, (CK_UTF8CHAR *)pin, strlen(pin)), "C_Login");
  shared.p11 = p11;
  shared.slot = slot;
  shared.id = id;
  atomic_init(&shared.left, count);
  double started = now();
  for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, sign_in_session, NULL);
  for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  printf("%.1f\n", (double)count / (now() - started));
}

typedef CK_ULONG (*operation)(CK_FUNCTION_LIST *, CK_SESSION_HANDLE, CK_BYTE, char *, CK_BYTE *, CK_ULONG);

static operation named(const char *name) {
  static const struct {
    const char *name;
    operation operation;
  } all[] = {{"sign", sign}, {"cert", certificate}, {"decrypt", decrypt}, {"derive", derive}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (strcmp(all[i].name, name) == 0) return all[i].operation;
  return NULL;
}

int main(int argc, char **argv) {
  operation wanted = argc == 6 ? named(argv[1]) : NULL;
  int in_sessions = argc == 7 && strcmp(argv[1], "sessions") == 0;
  if (wanted == NULL && !in_sessions) {
    fputs("usage: floor sign|cert|decrypt|derive|sessions LIBRARY SLOT-ID OBJECT-ID PIN [COUNT]\n", stderr);
    return 2;
  }
  void *library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
  CK_C_GetFunctionList function_list =
      library ? (CK_C_GetFunctionList)dlsym(library, "C_GetFunctionList") : NULL;
  if (function_list == NULL) {
    fprintf(stderr, "floor: %s\n", dlerror());
    return 1;
  }

  CK_FUNCTION_LIST *p11;
  CK_SESSION_HANDLE session;
  must(function_list(&p11), "C_GetFunctionList");
  CK_C_INITIALIZE_ARGS threads = {.flags = CKF_OS_LOCKING_OK};
  must(p11->C_Initialize(in_sessions ? &threads : NULL), "C_Initialize");
  if (in_sessions) {
    sign_in_sessions(p11, strtoul(argv[3], NULL, 10), (CK_BYTE)strtoul(argv[4], NULL, 10), argv[5],
                     strtol(argv[6], NULL, 10));
    must(p11->C_Finalize(NULL), "C_Finalize");
    return 0;
  }
  must(p11->C_OpenSession(strtoul(argv[3], NULL, 10), CKF_SERIAL_SESSION, NULL, NULL, &session),
       "C_OpenSession");

  CK_BYTE answer[8192];
  CK_BYTE id = (CK_BYTE)strtoul(argv[4], NULL, 10);
  CK_ULONG length = wanted(p11, session, id, argv[5], answer, sizeof answer);
  fwrite(answer, 1, length, stdout);
  must(p11->C_Finalize(NULL), "C_Finalize");
  return 0;
}
