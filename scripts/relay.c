/* The bare minimum of a process between a client and a server: it copies bytes both ways, and knows no TLS.
 *
 * scripts/bench tunnel measures the tunnel against this. One thread waits by epoll, and each piece is read and written by
 * one call: what is left is what the kernel takes to hand bytes from one process to the next.
 *
 *   relay PORT SERVER-PORT      both on 127.0.0.1; until it is killed
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { PIECE = 128 * 1024, MOST_DESCRIPTORS = 4096 };

static int must(int value, const char *call) {
  if (value < 0) {
    fprintf(stderr, "relay: %s: %s\n", call, strerror(errno));
    exit(1);
  }
  return value;
}

static struct sockaddr_in at(const char *port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

/* For each connection the one to which its bytes go, and what of them that one has not taken yet. */
static int other[MOST_DESCRIPTORS];
static struct {
  char *bytes;
  size_t sent, length;
} unsent[MOST_DESCRIPTORS];

static int events;

/* Waits for bytes from a connection, unless the other one has not taken those before, and for room for its own. */
static void watch(int operation, int connection) {
  struct epoll_event event = {.data.fd = connection};
  if (other[connection] < 0 || unsent[other[connection]].bytes == NULL) event.events |= EPOLLIN;
  if (unsent[connection].bytes != NULL) event.events |= EPOLLOUT;
  must(epoll_ctl(events, operation, connection, &event), "epoll_ctl");
}

static void take(int connection, int peer) {
  int yes = 1;
  if (connection >= MOST_DESCRIPTORS) exit(1);
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  other[connection] = peer;
  watch(EPOLL_CTL_ADD, connection);
}

/* Ends a connection and the other one. */
static void end(int connection) {
  int both[] = {connection, other[connection]};
  for (int i = 0; i < 2; i++) {
    free(unsent[both[i]].bytes);
    memset(&unsent[both[i]], 0, sizeof unsent[both[i]]);
    close(both[i]);
    other[both[i]] = -1;
  }
}

static void readable(int from) {
  static char piece[PIECE];
  int to = other[from];
  ssize_t length = recv(from, piece, sizeof piece, MSG_DONTWAIT);
  if (length < 0 && errno == EAGAIN) return;
  if (length <= 0) {
    end(from);
    return;
  }
  ssize_t sent = send(to, piece, (size_t)length, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN) {
    end(from);
    return;
  }
  if (sent == length) return;
  if (sent < 0) sent = 0;
  unsent[to].bytes = malloc((size_t)(length - sent));
  if (unsent[to].bytes == NULL) exit(1);
  memcpy(unsent[to].bytes, piece + sent, (size_t)(length - sent));
  unsent[to].sent = 0;
  unsent[to].length = (size_t)(length - sent);
  watch(EPOLL_CTL_MOD, from);
  watch(EPOLL_CTL_MOD, to);
}

static void writable(int to) {
  size_t left = unsent[to].length - unsent[to].sent;
  ssize_t sent = send(to, unsent[to].bytes + unsent[to].sent, left, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && errno == EAGAIN) return;
  if (sent < 0) {
    end(to);
    return;
  }
  unsent[to].sent += (size_t)sent;
  if ((size_t)sent < left) return;
  free(unsent[to].bytes);
  memset(&unsent[to], 0, sizeof unsent[to]);
  watch(EPOLL_CTL_MOD, to);
  watch(EPOLL_CTL_MOD, other[to]);
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fputs("usage: relay PORT SERVER-PORT\n", stderr);
    return 2;
  }
  struct sockaddr_in here = at(argv[1]), server = at(argv[2]);
  int yes = 1;
  int listener = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  must(bind(listener, (struct sockaddr *)&here, sizeof here), "bind");
  must(listen(listener, 1024), "listen");
  events = must(epoll_create1(0), "epoll_create1");
  memset(other, -1, sizeof other);
  watch(EPOLL_CTL_ADD, listener);
  for (;;) {
    struct epoll_event ready[64];
    int count = epoll_wait(events, ready, 64, -1);
    for (int i = 0; i < count; i++) {
      int connection = ready[i].data.fd;
      if (connection == listener) {
        int client = must(accept(listener, NULL, NULL), "accept");
        int upstream = must(socket(AF_INET, SOCK_STREAM, 0), "socket");
        must(connect(upstream, (struct sockaddr *)&server, sizeof server), "connect");
        take(client, upstream);
        take(upstream, client);
        continue;
      }
      if (other[connection] >= 0 && (ready[i].events & EPOLLOUT)) writable(connection);
      if (other[connection] >= 0 && (ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) readable(connection);
    }
  }
}
