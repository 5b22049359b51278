/* The bare minimum: the PKCS#11 calls without which there is no signature, or no certificate.
 *
 * scripts/bench measures the program against this. No error is explained, nothing is checked beyond
 * return values, nothing is freed: what is left is the module's own work, and starting a process.
 *
 *   floor sign|cert LIBRARY SLOT-ID OBJECT-ID PIN >answer        (OBJECT-ID: one byte, decimal)
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static CK_ULONG certificate(CK_FUNCTION_LIST *p11, CK_SESSION_HANDLE session, CK_BYTE id,
                            CK_BYTE *der, CK_ULONG length) {
  CK_ATTRIBUTE value = {CKA_VALUE, der, length};
  CK_OBJECT_HANDLE object = find(p11, session, CKO_CERTIFICATE, id);
  must(p11->C_GetAttributeValue(session, object, &value, 1), "C_GetAttributeValue");
  return value.ulValueLen;
}

int main(int argc, char **argv) {
  if (argc != 6) {
    fputs("usage: floor sign|cert LIBRARY SLOT-ID OBJECT-ID PIN\n", stderr);
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
  must(p11->C_Initialize(NULL), "C_Initialize");
  must(p11->C_OpenSession(strtoul(argv[3], NULL, 10), CKF_SERIAL_SESSION, NULL, NULL, &session),
       "C_OpenSession");

  CK_BYTE answer[8192];
  CK_BYTE id = (CK_BYTE)strtoul(argv[4], NULL, 10);
  CK_ULONG length = strcmp(argv[1], "sign") == 0
                        ? sign(p11, session, id, argv[5], answer, sizeof answer)
                        : certificate(p11, session, id, answer, sizeof answer);
  fwrite(answer, 1, length, stdout);
  must(p11->C_Finalize(NULL), "C_Finalize");
  return 0;
}
