/*
 * The way into a test bed: a loopback port of the machine in front of the sshd of the jump host.
 *
 *   way-in PORT STATE_DIR JUMP_PID_FILE JUMP_ADDRESS     serve (port 0: any free one)
 *   way-in --ctl STATE_DIR COMMAND...                    ask the server: delay MS | cut | reset | refuse | restore | status
 *
 * The jump host lives in a network namespace that has no link to this machine. A socket belongs to the namespace it
 * was made in, so the server steps into the jump host's namespace to dial, steps back, and then moves bytes between
 * the two sockets. It can hold them back (half of the round trip in each direction, the TCP handshake included),
 * stop moving them as a cut cable does, or reset everything. It never limits the rate.
 *
 * It writes way-in.number (its process number) and way-in.port, and listens on way-in.sock, in STATE_DIR.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MS INT64_C(1000000)
#define NEVER INT64_MAX
#define CHUNK (256 * 1024)
/* What may be under way in one direction: a second at 4 Gbit/s. Beyond that the sender waits, as on a real line. */
#define IN_FLIGHT (512u * 1024 * 1024)

struct chunk {
    struct chunk *next;
    int64_t due;
    size_t len, off;
    char data[];
};

/* One direction of a connection. */
struct flow {
    struct chunk *head, *tail;
    size_t bytes;
    bool ended;      /* the source has said end of file */
    int64_t end_due; /* when the sink shall hear of it */
    bool done;       /* it has */
};

struct conn {
    struct conn *next;
    int client, server; /* server is -1 until dialled */
    bool connected;     /* the dialled connection stands */
    int64_t read_at, dial_at;
    struct flow up, down;
    bool dead;
};

static struct conn *conns;
static int listener, home_ns;
static uint16_t port;
static int64_t round_trip;
static enum { OPEN, REFUSING, CUT } way = OPEN;
static int plug = -1; /* our own connection that fills the accept queue while cut */
static const char *jump_pid_file, *jump_address;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 * MS + t.tv_nsec;
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *fmt, ...)
{
    int err = errno;
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "way-in: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, ": %s\n", strerror(err));
    va_end(ap);
    exit(1);
}

static void no_delay(int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void close_with_reset(int fd)
{
    struct linger now_and_hard = {1, 0};
    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now_and_hard, sizeof now_and_hard);
    close(fd);
}

static struct sockaddr_in loopback(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

/* Bind by number even where the number was the kernel's choice: only then is it kept over shutdown(). */
static void make_listener(void)
{
    int one = 1, tries;
    for (tries = 0; tries < 10; tries++) {
        struct sockaddr_in a = loopback();
        socklen_t len = sizeof a;
        listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (listener < 0)
            fail("socket");
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(listener, (struct sockaddr *)&a, sizeof a) == 0) {
            if (port != 0)
                return;
            if (getsockname(listener, (struct sockaddr *)&a, &len) != 0)
                fail("getsockname");
            port = ntohs(a.sin_port);
        } else {
            port = 0; /* taken: any other will do */
        }
        close(listener);
    }
    fail("no free port on 127.0.0.1");
}

/* --- dialling ---------------------------------------------------------------------------------------------- */

static int jump_namespace(void)
{
    char path[64];
    long pid = 0;
    FILE *f = fopen(jump_pid_file, "re");
    if (f == NULL)
        return -1;
    if (fscanf(f, "%ld", &pid) != 1)
        pid = 0;
    fclose(f);
    if (pid <= 0)
        return -1;
    snprintf(path, sizeof path, "/proc/%ld/ns/net", pid);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static int dial(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(22)};
    int fd = -1, ns = jump_namespace();
    if (ns < 0)
        return -1;
    inet_pton(AF_INET, jump_address, &a.sin_addr);
    if (setns(ns, CLONE_NEWNET) == 0) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) != 0 && errno != EINPROGRESS) {
            close(fd);
            fd = -1;
        }
        if (setns(home_ns, CLONE_NEWNET) != 0)
            fail("cannot get back to the own network namespace");
    }
    close(ns);
    if (fd >= 0)
        no_delay(fd);
    return fd;
}

/* --- moving bytes ------------------------------------------------------------------------------------------ */

static int64_t arrival(const struct flow *f)
{
    int64_t t = now() + round_trip / 2;
    return f->tail != NULL && f->tail->due > t ? f->tail->due : t;
}

/* Returns false when the connection is broken. */
static bool take_in(int fd, struct flow *f)
{
    static char buf[CHUNK];
    ssize_t n = recv(fd, buf, sizeof buf, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if (n == 0) {
        f->ended = true;
        f->end_due = arrival(f);
        return true;
    }
    struct chunk *c = malloc(sizeof *c + (size_t)n);
    if (c == NULL)
        fail("malloc");
    c->next = NULL;
    c->due = arrival(f);
    c->len = (size_t)n;
    c->off = 0;
    memcpy(c->data, buf, (size_t)n);
    if (f->tail != NULL)
        f->tail->next = c;
    else
        f->head = c;
    f->tail = c;
    f->bytes += (size_t)n;
    return true;
}

static bool give_out(int fd, struct flow *f)
{
    int64_t t = now();
    while (f->head != NULL && f->head->due <= t) {
        struct chunk *c = f->head;
        ssize_t n = send(fd, c->data + c->off, c->len - c->off, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        c->off += (size_t)n;
        f->bytes -= (size_t)n;
        if (c->off < c->len)
            return true;
        f->head = c->next;
        if (f->head == NULL)
            f->tail = NULL;
        free(c);
    }
    if (f->head == NULL && f->ended && !f->done && f->end_due <= t) {
        shutdown(fd, SHUT_WR);
        f->done = true;
    }
    return true;
}

static int64_t next_due(const struct flow *f)
{
    if (f->head != NULL)
        return f->head->due;
    return f->ended && !f->done ? f->end_due : NEVER;
}

static void drop(struct conn *c, bool hard)
{
    struct flow *flows[] = {&c->up, &c->down};
    if (hard) {
        close_with_reset(c->client);
        close_with_reset(c->server);
    } else {
        close(c->client);
        close(c->server);
    }
    for (int i = 0; i < 2; i++)
        while (flows[i]->head != NULL) {
            struct chunk *k = flows[i]->head;
            flows[i]->head = k->next;
            free(k);
        }
    c->dead = true;
}

static void bury(void)
{
    struct conn **p = &conns;
    while (*p != NULL) {
        struct conn *c = *p;
        if (c->dead) {
            *p = c->next;
            free(c);
        } else {
            p = &c->next;
        }
    }
}

static void welcome(int fd)
{
    struct conn *c = calloc(1, sizeof *c);
    int64_t t = now();
    if (c == NULL)
        fail("calloc");
    no_delay(fd);
    c->client = fd;
    c->server = -1;
    /* On a real line the client's first byte leaves one round trip after its SYN, and the server hears of the
       connection half a round trip after that. */
    c->read_at = t + round_trip;
    c->dial_at = t + round_trip + round_trip / 2;
    c->next = conns;
    conns = c;
}

/* --- the state of the way ---------------------------------------------------------------------------------- */

static uint16_t peer_port(int fd)
{
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    return getpeername(fd, (struct sockaddr *)&a, &len) == 0 ? ntohs(a.sin_port) : 0;
}

static uint16_t own_port(int fd)
{
    struct sockaddr_in a;
    socklen_t len = sizeof a;
    return getsockname(fd, (struct sockaddr *)&a, &len) == 0 ? ntohs(a.sin_port) : 0;
}

static void open_way(void)
{
    if (listen(listener, 256) != 0)
        fail("listen");
    if (plug >= 0) {
        uint16_t mine = own_port(plug);
        int fd;
        while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
            if (peer_port(fd) == mine)
                close(fd);
            else
                welcome(fd);
        }
        close(plug);
        plug = -1;
    }
    way = OPEN;
}

/* Connections already there stay as they are, new ones are refused; the port stays ours. */
static void refuse(void)
{
    if (way != OPEN)
        open_way();
    shutdown(listener, SHUT_RDWR);
    way = REFUSING;
}

/* Nothing moves any more. A full accept queue makes the kernel ignore a SYN, as if nobody were there. */
static void cut(void)
{
    struct sockaddr_in a = loopback();
    if (way == REFUSING)
        open_way();
    if (way == CUT)
        return;
    listen(listener, 0);
    plug = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (plug >= 0 && connect(plug, (struct sockaddr *)&a, sizeof a) != 0 && errno != EINPROGRESS) {
        close(plug);
        plug = -1;
    }
    way = CUT;
}

static void answer(int ctl)
{
    char line[128] = "", reply[256];
    double ms;
    struct timeval second = {1, 0};
    int fd = accept4(ctl, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
    ssize_t n = recv(fd, line, sizeof line - 1, 0);
    line[n > 0 ? n : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    bool known = true;
    if (sscanf(line, "delay %lf", &ms) == 1 && ms >= 0 && ms <= 60000)
        round_trip = (int64_t)(ms * (double)MS);
    else if (strcmp(line, "cut") == 0)
        cut();
    else if (strcmp(line, "refuse") == 0)
        refuse();
    else if (strcmp(line, "restore") == 0)
        open_way();
    else if (strcmp(line, "reset") == 0) {
        refuse();
        for (struct conn *c = conns; c != NULL; c = c->next)
            drop(c, true);
        bury();
    } else
        known = strcmp(line, "status") == 0;
    if (known) {
        static const char *const words[] = {"open", "refusing", "cut"};
        int count = 0;
        for (struct conn *c = conns; c != NULL; c = c->next)
            count++;
        snprintf(reply, sizeof reply, "way %s, delay %.3g ms, connections %d, port %u\n", words[way],
                 (double)round_trip / (double)MS, count, port);
    } else
        snprintf(reply, sizeof reply, "error: unknown command '%s'\n", line);
    (void)!send(fd, reply, strlen(reply), MSG_NOSIGNAL);
    close(fd);
}

/* --- the loop ---------------------------------------------------------------------------------------------- */

static void dial_for(struct conn *c)
{
    c->server = dial();
    if (c->server < 0)
        drop(c, true);
}

static void serve(int ctl)
{
    struct pollfd *fds = NULL;
    size_t room = 0;

    for (;;) {
        size_t n = 2, count = 0;
        int64_t t = now(), wake = NEVER;
        for (struct conn *c = conns; c != NULL; c = c->next)
            count++;
        if (room < 2 + 2 * count) {
            room = 2 * (2 + 2 * count);
            fds = realloc(fds, room * sizeof *fds);
            if (fds == NULL)
                fail("realloc");
        }
        fds[0] = (struct pollfd){.fd = ctl, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = way == OPEN ? listener : -1, .events = POLLIN};
        for (struct conn *c = conns; c != NULL; c = c->next) {
            struct pollfd *pc = &fds[n++], *ps = &fds[n++];
            *pc = (struct pollfd){.fd = c->client};
            *ps = (struct pollfd){.fd = c->server};
            if (way == CUT) {
                pc->fd = ps->fd = -1;
                continue;
            }
            if (c->server < 0) {
                wake = c->dial_at < wake ? c->dial_at : wake;
            } else if (!c->connected) {
                ps->events |= POLLOUT;
            } else {
                if (!c->down.ended && c->down.bytes < IN_FLIGHT)
                    ps->events |= POLLIN;
                if (next_due(&c->up) <= t)
                    ps->events |= POLLOUT;
                else if (next_due(&c->up) < wake)
                    wake = next_due(&c->up);
            }
            if (!c->up.ended && c->up.bytes < IN_FLIGHT) {
                if (c->read_at <= t)
                    pc->events |= POLLIN;
                else if (c->read_at < wake)
                    wake = c->read_at;
            }
            if (next_due(&c->down) <= t)
                pc->events |= POLLOUT;
            else if (next_due(&c->down) < wake)
                wake = next_due(&c->down);
            /* An end without interest would wake us for ever by POLLHUP. */
            if (pc->events == 0)
                pc->fd = -1;
            if (ps->events == 0)
                ps->fd = -1;
        }
        struct timespec timeout = {0, 0}, *limit = NULL;
        if (wake != NEVER) {
            int64_t left = wake > t ? wake - t : 0;
            timeout.tv_sec = (time_t)(left / (1000 * MS));
            timeout.tv_nsec = (long)(left % (1000 * MS));
            limit = &timeout;
        }
        if (ppoll(fds, n, limit, NULL) < 0) {
            if (errno == EINTR)
                continue;
            fail("ppoll");
        }
        size_t i = 2;
        for (struct conn *c = conns; c != NULL; c = c->next, i += 2) {
            bool sound = true;
            if (way == CUT)
                continue;
            if (c->server < 0) {
                if (fds[i].revents & (POLLIN | POLLHUP | POLLERR))
                    sound = take_in(c->client, &c->up);
                if (sound && c->dial_at <= now())
                    dial_for(c);
                if (!sound)
                    drop(c, true);
                continue;
            }
            if (!c->connected && fds[i + 1].revents != 0) {
                int err = 0;
                socklen_t len = sizeof err;
                getsockopt(c->server, SOL_SOCKET, SO_ERROR, &err, &len);
                sound = err == 0;
                c->connected = sound;
                fds[i + 1].revents = 0;
            }
            if (sound && fds[i].events & POLLIN && fds[i].revents & (POLLIN | POLLHUP | POLLERR))
                sound = take_in(c->client, &c->up);
            if (sound && fds[i + 1].events & POLLIN && fds[i + 1].revents & (POLLIN | POLLHUP | POLLERR))
                sound = take_in(c->server, &c->down);
            if (sound && c->connected)
                sound = give_out(c->server, &c->up);
            if (sound)
                sound = give_out(c->client, &c->down);
            if (!sound)
                drop(c, true);
            else if (c->up.done && c->down.done)
                drop(c, false);
        }
        bury();
        if (fds[1].revents & POLLIN) {
            int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (fd >= 0)
                welcome(fd);
        }
        if (fds[0].revents & POLLIN)
            answer(ctl);
    }
}

/* --- start ------------------------------------------------------------------------------------------------- */

static struct sockaddr_un control_address(const char *dir)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (snprintf(a.sun_path, sizeof a.sun_path, "%s/way-in.sock", dir) >= (int)sizeof a.sun_path) {
        errno = ENAMETOOLONG;
        fail("%s", dir);
    }
    return a;
}

static int ask(const char *dir, int argc, char **argv)
{
    struct sockaddr_un a = control_address(dir);
    char line[128] = "", reply[256];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (int i = 0; i < argc; i++) {
        size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, "%s%s", i ? " " : "", argv[i]);
    }
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0)
        fail("%s", a.sun_path);
    if (send(fd, line, strlen(line), MSG_NOSIGNAL) < 0)
        fail("send");
    ssize_t n = recv(fd, reply, sizeof reply - 1, 0);
    reply[n > 0 ? n : 0] = '\0';
    fputs(reply, stdout);
    return n > 0 && strncmp(reply, "error", 5) != 0 ? 0 : 1;
}

static void write_number(const char *dir, const char *name, long number)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "we");
    if (f == NULL)
        fail("%s", path);
    fprintf(f, "%ld\n", number);
    if (fclose(f) != 0)
        fail("%s", path);
}

int main(int argc, char **argv)
{
    if (argc >= 4 && strcmp(argv[1], "--ctl") == 0)
        return ask(argv[2], argc - 3, argv + 3);
    if (argc != 5) {
        fprintf(stderr, "usage: way-in PORT STATE_DIR JUMP_PID_FILE JUMP_ADDRESS\n"
                        "       way-in --ctl STATE_DIR COMMAND...\n");
        return 2;
    }
    port = (uint16_t)atoi(argv[1]);
    jump_pid_file = argv[3];
    jump_address = argv[4];
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    struct rlimit files = {65536, 65536};
    setrlimit(RLIMIT_NOFILE, &files);
    home_ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home_ns < 0)
        fail("/proc/self/ns/net");
    make_listener();
    open_way();
    struct sockaddr_un a = control_address(argv[2]);
    unlink(a.sun_path);
    int ctl = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (ctl < 0 || bind(ctl, (struct sockaddr *)&a, sizeof a) != 0 || listen(ctl, 8) != 0)
        fail("%s", a.sun_path);
    /* The number this machine knows us by, which is not ours if we are in a PID namespace. */
    char self[32];
    ssize_t n = readlink("/proc/self", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    write_number(argv[2], "way-in.number", atol(self));
    write_number(argv[2], "way-in.port", port);
    serve(ctl);
}
