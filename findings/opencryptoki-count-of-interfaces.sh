#!/usr/bin/env bash
# opencryptoki's C_GetInterfaceList leaves the caller's count as it was where the array has room to spare.
#
# The standard (PKCS#11 3.0, section 5.4.5) has the function set the count to the number of interfaces. opencryptoki 3.23
# does so only where no array is given, or one that is too short. Whoever comes with room for sixteen, as a caller may
# that asks once, gets CKR_OK, three interfaces, and a count of sixteen: thirteen null pointers count as interfaces
# then. NSS 3.110 sets the count.
#
# Seen with Debian 13's libopencryptoki0 3.23.0+dfsg-0.3+deb13u1 and libnss3 2:3.110-1+deb13u5; the lines stand at the end.
# Neither a daemon nor a token is needed for it.
#
# Needs a Debian with apt-get, gcc and the headers of libp11-kit-dev; the release's packages are unpacked into a temporary
# folder and run with their own C library. Fails if it sees anything else.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
mkdir -p lists/partial cache/archives/partial root
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' | head -n 1)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >sources
get() {
  apt-get -qq -o APT::Sandbox::User=root -o Dir::Etc::sourcelist="$place/sources" -o Dir::Etc::sourceparts=- \
    -o Dir::State::lists="$place/lists" -o Dir::Cache="$place/cache" "$@"
}
get update
get download libopencryptoki0=3.23.0+dfsg-0.3+deb13u1 libcap2=1:2.75-10+deb13u1+b3 libldap2=2.6.10+dfsg-1 \
  libssl3t64=3.5.9-1~deb13u1 libsasl2-2=2.1.28+dfsg1-9 libc6=2.41-12+deb13u5 zlib1g=1:1.3.dfsg+really1.3.1-1+deb13u1 \
  libzstd1=1.5.7+dfsg-1 libnss3=2:3.110-1+deb13u5 libnspr4=2:4.36-1 libsqlite3-0=3.46.1-7+deb13u2 2>/dev/null >&2
for package in *.deb; do dpkg -x "$package" root; done
libraries=$place/root/usr/lib/x86_64-linux-gnu

cat >interfaces.c <<'C'
#include <dlfcn.h>
#include <stdio.h>

/* CK_INTERFACE of PKCS#11 3.0. */
struct interface {
  char *name;
  void *functions;
  unsigned long flags;
};

int main(int count, char **words) {
  void *library = count == 2 ? dlopen(words[1], RTLD_NOW) : NULL;
  if (library == NULL) return puts(dlerror());
  unsigned long (*list)(struct interface *, unsigned long *) =
      (unsigned long (*)(struct interface *, unsigned long *))dlsym(library, "C_GetInterfaceList");
  unsigned long known = 0;
  unsigned long answer = list(NULL, &known);
  printf("  no array: CKR %lu, count %lu\n", answer, known);
  unsigned long rooms[] = {known - 1, known, known + 1, 16};
  for (int i = 0; i < 4; i++) {
    struct interface interfaces[16] = {0};
    unsigned long room = rooms[i], said = room, filled = 0;
    answer = list(interfaces, &said);
    while (filled < 16 && interfaces[filled].name != NULL) filled++;
    printf("  room for %lu: CKR %lu, count %lu, filled %lu\n", room, answer, said, filled);
  }
  return 0;
}
C
gcc -o interfaces interfaces.c -ldl
{
  for library in opencryptoki/libopencryptoki.so.0 libsoftokn3.so; do
    echo "${library##*/}"
    "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" ./interfaces "$libraries/$library"
  done
} | tee seen
diff - seen <<'SEEN'
libopencryptoki.so.0
  no array: CKR 0, count 3
  room for 2: CKR 336, count 3, filled 0
  room for 3: CKR 0, count 3, filled 3
  room for 4: CKR 0, count 4, filled 3
  room for 16: CKR 0, count 16, filled 3
libsoftokn3.so
  no array: CKR 0, count 5
  room for 4: CKR 336, count 5, filled 0
  room for 5: CKR 0, count 5, filled 5
  room for 6: CKR 0, count 5, filled 5
  room for 16: CKR 0, count 5, filled 5
SEEN
echo "It still leaves the count as it was."
