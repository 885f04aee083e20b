/*
 * `srun --environment=EDF`: a stand-in for a site's container plugin, for tests.
 *
 * The client (srun, sbatch, salloc) finds, reads and flattens the environment definition file, so a bad file fails
 * there. The flat form travels in SLURM_EDF. On the node, slurmstepd makes one mount namespace per step (all tasks of
 * a node share it); a task joins it before it runs. With an image (a root directory) the new root is that directory
 * with a private writable layer; without one it is the node's own root with the mounts added. What the node itself
 * has is never changed.
 *
 * A container that cannot start fails the tasks with the words pyxis uses; the application then never ran.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(pyxis, 1)

#define MAX_LEVELS 10
#define MAX_ITEMS 256
#define TRAVELS_IN "SLURM_EDF"

struct list {
    int count;
    char *item[MAX_ITEMS];
};

struct edf {
    char *image, *workdir;
    bool writable;
    struct list mounts, env; /* "SRC:DST[:FLAGS]" and "NAME=VALUE" */
};

static char complaint[PATH_MAX + 512];

__attribute__((format(printf, 1, 2))) static bool complain(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(complaint, sizeof complaint, fmt, ap);
    va_end(ap);
    return false;
}

static char *copy(const char *s)
{
    char *c = strdup(s);
    if (c == NULL)
        abort();
    return c;
}

static bool append(struct list *l, const char *s)
{
    if (l->count == MAX_ITEMS)
        return complain("more than %d entries", MAX_ITEMS);
    l->item[l->count++] = copy(s);
    return true;
}

static void set_env(struct list *l, const char *name, const char *value)
{
    size_t n = strlen(name);
    char *entry = NULL;
    if (asprintf(&entry, "%s=%s", name, value) < 0)
        abort();
    for (int i = 0; i < l->count; i++)
        if (strncmp(l->item[i], entry, n + 1) == 0) {
            free(l->item[i]);
            l->item[i] = entry;
            return;
        }
    append(l, entry);
    free(entry);
}

/* --- reading: the part of TOML that environment definition files use ---------------------------------------- */

struct reader {
    const char *path, *p;
    int line;
};

static bool bad(struct reader *r, const char *what)
{
    return complain("%s: line %d: %s", r->path, r->line, what);
}

static void blanks(struct reader *r, bool lines_too)
{
    for (;;) {
        if (*r->p == '#')
            r->p += strcspn(r->p, "\n");
        else if (*r->p == '\n' && lines_too)
            r->line++, r->p++;
        else if (*r->p == ' ' || *r->p == '\t' || *r->p == '\r')
            r->p++;
        else
            return;
    }
}

static char *unicode(char *out, unsigned long c)
{
    if (c < 0x80) {
        *out++ = (char)c;
    } else if (c < 0x800) {
        *out++ = (char)(0xc0 | c >> 6);
        *out++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *out++ = (char)(0xe0 | c >> 12);
        *out++ = (char)(0x80 | (c >> 6 & 63));
        *out++ = (char)(0x80 | (c & 63));
    } else {
        *out++ = (char)(0xf0 | c >> 18);
        *out++ = (char)(0x80 | (c >> 12 & 63));
        *out++ = (char)(0x80 | (c >> 6 & 63));
        *out++ = (char)(0x80 | (c & 63));
    }
    return out;
}

/* "basic" with escapes or 'literal'; the result is at most as long as what was written. */
static bool string(struct reader *r, char **result)
{
    char quote = *r->p;
    if (quote != '"' && quote != '\'')
        return bad(r, "want a string");
    if (r->p[1] == quote && r->p[2] == quote)
        return bad(r, "strings over several lines are not understood here");
    char *buf = malloc(strlen(r->p)), *out = buf;
    if (buf == NULL)
        abort();
    for (r->p++; *r->p != quote; r->p++) {
        if (*r->p == '\0' || *r->p == '\n') {
            free(buf);
            return bad(r, "string without its closing quote");
        }
        if (*r->p != '\\' || quote == '\'') {
            *out++ = *r->p;
            continue;
        }
        static const char from[] = "btnfre\"\\", to[] = "\b\t\n\f\r\033\"\\";
        const char *e = strchr(from, *++r->p);
        if (*r->p == 'u' || *r->p == 'U') {
            int digits = *r->p == 'u' ? 4 : 8, i;
            unsigned long c = 0;
            for (i = 0; i < digits && isxdigit((unsigned char)r->p[1]); i++) {
                char d[2] = {*++r->p, '\0'};
                c = c << 4 | strtoul(d, NULL, 16);
            }
            if (i < digits || c == 0 || c > 0x10ffff) {
                free(buf);
                return bad(r, "bad \\u escape in string");
            }
            out = unicode(out, c);
        } else if (*r->p != '\0' && e != NULL) {
            *out++ = to[e - from];
        } else {
            free(buf);
            return bad(r, "unknown escape in string");
        }
    }
    r->p++;
    *out = '\0';
    *result = buf;
    return true;
}

static bool key(struct reader *r, char **result)
{
    if (*r->p == '"' || *r->p == '\'')
        return string(r, result);
    size_t n = strspn(r->p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    if (n == 0)
        return bad(r, "want a key");
    *result = strndup(r->p, n);
    r->p += n;
    return true;
}

struct value {
    enum { STRING, BOOLEAN, ARRAY } kind;
    bool truth;
    struct list strings; /* one for STRING */
};

static bool value(struct reader *r, struct value *v)
{
    char *s;
    memset(v, 0, sizeof *v);
    if (*r->p == '[') {
        v->kind = ARRAY;
        r->p++;
        for (blanks(r, true); *r->p != ']'; blanks(r, true)) {
            if (!string(r, &s) || !append(&v->strings, s))
                return false;
            free(s);
            blanks(r, true);
            if (*r->p == ',')
                r->p++;
            else if (*r->p != ']')
                return bad(r, "want ',' or ']' in the array");
        }
        r->p++;
        return true;
    }
    if (strncmp(r->p, "true", 4) == 0 || strncmp(r->p, "false", 5) == 0) {
        v->kind = BOOLEAN;
        v->truth = *r->p == 't';
        r->p += v->truth ? 4 : 5;
        return true;
    }
    v->kind = STRING;
    if (*r->p != '"' && *r->p != '\'')
        return bad(r, "want a string, an array of strings, true or false");
    return string(r, &s) && append(&v->strings, s);
}

/* ${NAME} must be set, ${NAME:-default} need not be, $${NAME} is literal. */
static bool expand(struct reader *r, const char *in, char **result)
{
    size_t size = 0;
    FILE *out = open_memstream(result, &size);
    for (const char *p = in; *p != '\0'; p++) {
        const char *end;
        if (strncmp(p, "$${", 3) == 0) {
            fputc(*++p, out);
        } else if (strncmp(p, "${", 2) == 0 && (end = strchr(p, '}')) != NULL) {
            char *name = strndup(p + 2, (size_t)(end - p - 2)), *fallback = strstr(name, ":-");
            if (fallback != NULL) {
                *fallback = '\0';
                fallback += 2;
            }
            const char *v = getenv(name);
            if (v == NULL || (*v == '\0' && fallback != NULL))
                v = fallback;
            if (v == NULL) {
                fclose(out);
                complain("%s: environment variable %s is not set", r->path, name);
                free(name);
                return false;
            }
            fputs(v, out);
            free(name);
            p = end;
        } else {
            fputc(*p, out);
        }
    }
    fclose(out);
    return true;
}

static bool slurp(const char *path, char **text)
{
    FILE *f = fopen(path, "re");
    struct stat st;
    if (f == NULL)
        return complain("%s: %s", path, strerror(errno));
    if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > 1 << 20) {
        fclose(f);
        return complain("%s: not a regular file of at most 1 MiB", path);
    }
    *text = calloc(1, (size_t)st.st_size + 1);
    size_t n = fread(*text, 1, (size_t)st.st_size, f);
    fclose(f);
    if (strlen(*text) != n)
        return complain("%s: contains a zero byte", path);
    return true;
}

/* A path if it has a slash or ends in .toml; else NAME.toml in one of $EDF_PATH, ~/.edf by default. */
static bool locate(const char *name, char **path)
{
    size_t n = strlen(name);
    if (n == 0)
        return complain("--environment wants a file or a name");
    if (strchr(name, '/') != NULL || (n > 5 && strcmp(name + n - 5, ".toml") == 0)) {
        *path = realpath(name, NULL);
        return *path != NULL || complain("%s: %s", name, strerror(errno));
    }
    const char *dirs = getenv("EDF_PATH"), *home = getenv("HOME");
    char *all = NULL, *rest, *dir;
    if (dirs != NULL && *dirs != '\0')
        all = copy(dirs);
    else if (asprintf(&all, "%s/.edf", home != NULL ? home : "") < 0)
        abort();
    for (rest = all; (dir = strsep(&rest, ":")) != NULL;) {
        if (asprintf(path, "%s/%s.toml", dir, name) < 0)
            abort();
        if (access(*path, F_OK) == 0) {
            free(all);
            return true;
        }
        free(*path);
    }
    complain("no environment '%s' in %s", name, dirs != NULL && *dirs != '\0' ? dirs : "~/.edf");
    free(all);
    return false;
}

static bool read_edf(const char *path, int level, struct edf *e);

static bool assign(struct reader *r, const char *table, const char *k, struct value *v, int level, struct edf *e)
{
    char *s = NULL;
    if (strncmp(table, "annotations", 11) == 0)
        return true;
    if (strcmp(table, "env") == 0) {
        if (v->kind != STRING)
            return bad(r, "an [env] entry must be a string");
        if (*k == '\0' || strchr(k, '=') != NULL)
            return bad(r, "not a name of an environment variable");
        if (!expand(r, v->strings.item[0], &s))
            return false;
        set_env(&e->env, k, s);
        return true;
    }
    if (strcmp(k, "base_environment") == 0) {
        if (v->kind == BOOLEAN)
            return bad(r, "base_environment must be a string or an array of strings");
        for (int i = 0; i < v->strings.count; i++) {
            char *base;
            if (*v->strings.item[i] == '\0')
                continue;
            if (!expand(r, v->strings.item[i], &s) || !locate(s, &base) || !read_edf(base, level + 1, e))
                return false;
        }
        return true;
    }
    if (strcmp(k, "mounts") == 0) {
        if (v->kind != ARRAY)
            return bad(r, "mounts must be an array of strings");
        for (int i = 0; i < v->strings.count; i++)
            if (!expand(r, v->strings.item[i], &s) || !append(&e->mounts, s))
                return false;
        return true;
    }
    if (strcmp(k, "writable") == 0 || strcmp(k, "entrypoint") == 0) {
        if (v->kind != BOOLEAN)
            return bad(r, "want true or false");
        if (*k == 'w')
            e->writable = v->truth;
        return true;
    }
    if (strcmp(k, "image") == 0 || strcmp(k, "workdir") == 0) {
        if (v->kind != STRING)
            return bad(r, "want a string");
        if (!expand(r, v->strings.item[0], &s))
            return false;
        *(*k == 'i' ? &e->image : &e->workdir) = s;
        return true;
    }
    return complain("%s: line %d: unknown key '%s'", r->path, r->line, k);
}

/*
 * Two passes over one file: base environments come first wherever they are written, then the file's own keys add to
 * them or replace them.
 */
static bool pass(const char *path, const char *text, bool bases, int level, struct edf *e)
{
    struct reader r = {path, text, 1};
    struct list tables = {0}, keys = {0};
    char table[256] = "", *k, *full;

    for (blanks(&r, true); *r.p != '\0'; blanks(&r, true)) {
        if (*r.p == '[') {
            r.p++;
            size_t n = strcspn(r.p, "]\n");
            if (r.p[n] != ']' || n == 0 || n >= sizeof table)
                return bad(&r, "bad table header");
            snprintf(table, sizeof table, "%.*s", (int)n, r.p);
            r.p += n + 1;
            if (strcmp(table, "env") != 0 && strcmp(table, "annotations") != 0 &&
                strncmp(table, "annotations.", 12) != 0)
                return complain("%s: line %d: unknown table [%s]", path, r.line, table);
            for (int i = 0; i < tables.count; i++)
                if (strcmp(tables.item[i], table) == 0)
                    return complain("%s: line %d: table [%s] is there twice", path, r.line, table);
            append(&tables, table);
        } else {
            struct value v;
            char where[256];
            int at = r.line;
            snprintf(where, sizeof where, "%s", table);
            if (!key(&r, &k))
                return false;
            blanks(&r, false);
            while (*r.p == '.') { /* a.b.c = ...: only the first part matters here */
                r.p++;
                blanks(&r, false);
                if (table[0] == '\0' && where[0] == '\0')
                    snprintf(where, sizeof where, "%s", k);
                if (!key(&r, &k))
                    return false;
                blanks(&r, false);
            }
            if (*r.p++ != '=')
                return r.p--, bad(&r, "want '=' after the key");
            blanks(&r, false);
            if (!value(&r, &v))
                return false;
            if (asprintf(&full, "%s.%s", where, k) < 0)
                abort();
            for (int i = 0; strncmp(where, "annotations", 11) != 0 && i < keys.count; i++)
                if (strcmp(keys.item[i], full) == 0)
                    return complain("%s: line %d: key '%s' is there twice", path, at, k);
            append(&keys, full);
            if (bases == (where[0] == '\0' && strcmp(k, "base_environment") == 0) &&
                !assign(&r, where, k, &v, level, e))
                return false;
        }
        blanks(&r, false);
        if (*r.p != '\n' && *r.p != '\0')
            return bad(&r, "something after the end of the entry");
    }
    return true;
}

static bool read_edf(const char *path, int level, struct edf *e)
{
    char *text = NULL;
    if (level > MAX_LEVELS)
        return complain("%s: base_environment goes deeper than %d levels", path, MAX_LEVELS);
    return slurp(path, &text) && pass(path, text, true, level, e) && pass(path, text, false, level, e);
}

/* --- the flat form: one item a line, backslash before newline and backslash ---------------------------------- */

static void put(FILE *out, char kind, const char *s)
{
    fputc(kind, out);
    for (; *s != '\0'; s++) {
        if (*s == '\n' || *s == '\\')
            fputc('\\', out);
        fputc(*s == '\n' ? 'n' : *s, out);
    }
    fputc('\n', out);
}

static char *flatten(const struct edf *e)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    put(out, 'i', e->image != NULL ? e->image : "");
    put(out, 'w', e->workdir != NULL ? e->workdir : "");
    put(out, 'r', e->writable ? "w" : "");
    for (int i = 0; i < e->mounts.count; i++)
        put(out, 'm', e->mounts.item[i]);
    for (int i = 0; i < e->env.count; i++)
        put(out, 'e', e->env.item[i]);
    fclose(out);
    return text;
}

static void unflatten(const char *text, struct edf *e)
{
    while (*text != '\0') {
        char kind = *text++, *buf = malloc(strlen(text) + 1), *out = buf;
        for (; *text != '\n' && *text != '\0'; text++) {
            if (*text == '\\' && text[1] != '\0')
                *out++ = *++text == 'n' ? '\n' : *text;
            else
                *out++ = *text;
        }
        if (*text == '\n')
            text++;
        *out = '\0';
        switch (kind) {
        case 'i': e->image = copy(buf); break;
        case 'w': e->workdir = copy(buf); break;
        case 'r': e->writable = *buf == 'w'; break;
        case 'm': append(&e->mounts, buf); break;
        case 'e': append(&e->env, buf); break;
        }
        free(buf);
    }
}

/* --- the container -------------------------------------------------------------------------------------------- */

/* Where the new root is put together; it exists on every node and is covered only inside the new namespace. */
#define NEW_ROOT "/mnt"
/* Room for what a step writes into its container, and for mount targets. */
#define LAYER_OPTIONS "mode=755,size=1g"

static uid_t user_uid;
static gid_t user_gid;

/* Look at a path with the user's own rights. */
static int open_as_user(const char *path, int flags)
{
    int saved;
    setfsgid(user_gid);
    setfsuid(user_uid);
    int fd = open(path, flags | O_CLOEXEC);
    saved = errno;
    setfsuid(0);
    setfsgid(0);
    errno = saved;
    return fd;
}

/* Make PATH (below the new root) as a directory, or a file for a file; only on the private layer. */
static bool make_target(const char *path, bool directory)
{
    struct stat root, st;
    char buf[PATH_MAX], *p;
    if (stat(path, &st) == 0)
        return true;
    if (stat(NEW_ROOT, &root) != 0 || snprintf(buf, sizeof buf, "%s", path) >= (int)sizeof buf)
        return complain("%s: %s", path, strerror(errno));
    for (p = buf + strlen(NEW_ROOT) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        if (stat(buf, &st) == 0) {
            *p = '/';
            continue;
        }
        *strrchr(buf, '/') = '\0';
        bool private = stat(buf, &st) == 0 && st.st_dev == root.st_dev;
        snprintf(buf, sizeof buf, "%s", path);
        p = buf + (p - buf);
        *p = '\0';
        if (!private || mkdir(buf, 0755) != 0)
            return complain("mount target %s: No such file or directory", path + strlen(NEW_ROOT));
        *p = '/';
    }
    p = strrchr(buf, '/');
    *p = '\0';
    if (stat(buf, &st) != 0 || st.st_dev != root.st_dev)
        return complain("mount target %s: No such file or directory", path + strlen(NEW_ROOT));
    *p = '/';
    if (directory ? mkdir(buf, 0755) != 0 : mknod(buf, S_IFREG | 0644, 0) != 0)
        return complain("mount target %s: %s", path + strlen(NEW_ROOT), strerror(errno));
    return true;
}

static bool add_mount(const char *spec)
{
    char *s = copy(spec), *dst, *flags, target[PATH_MAX], from[64];
    unsigned long how = MS_BIND | MS_REC;
    bool read_only = false;
    struct stat st;

    dst = strchr(s, ':');
    if (dst == NULL)
        return complain("mount %s: want SOURCE:TARGET[:FLAGS]", spec);
    *dst++ = '\0';
    flags = strchr(dst, ':');
    if (flags != NULL)
        *flags++ = '\0';
    for (char *f; flags != NULL && (f = strsep(&flags, "+,")) != NULL;) {
        if (strcmp(f, "ro") == 0)
            read_only = true;
        else if (strcmp(f, "bind") == 0)
            how &= ~(unsigned long)MS_REC;
        else if (strcmp(f, "rw") != 0 && strcmp(f, "rbind") != 0 && strcmp(f, "private") != 0 &&
                 strcmp(f, "rprivate") != 0 && strcmp(f, "nosuid") != 0 && strcmp(f, "nodev") != 0 && *f != '\0')
            return complain("mount %s: unknown flag '%s'", spec, f);
    }
    if (*dst != '/' || strstr(dst, "/..") != NULL)
        return complain("mount %s: the target must be an absolute path", spec);
    int fd = open_as_user(s, O_PATH);
    if (fd < 0 || fstat(fd, &st) != 0)
        return complain("No such file or directory: %s (mount %s: %s)", s, spec, strerror(errno));
    while (strlen(dst) > 1 && dst[strlen(dst) - 1] == '/')
        dst[strlen(dst) - 1] = '\0';
    if (snprintf(target, sizeof target, "%s%s", NEW_ROOT, dst) >= (int)sizeof target)
        return complain("mount %s: the target is too long", spec);
    if (!make_target(target, S_ISDIR(st.st_mode)))
        return false;
    snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    if (mount(from, target, NULL, how, NULL) != 0)
        return complain("mount %s: %s", spec, strerror(errno));
    if (read_only && mount(NULL, target, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) != 0)
        return complain("mount %s: read-only: %s", spec, strerror(errno));
    close(fd);
    return true;
}

static bool bind_into_root(const char *dir)
{
    char to[PATH_MAX];
    snprintf(to, sizeof to, "%s%s", NEW_ROOT, dir);
    mkdir(to, 0755);
    if (mount(dir, to, NULL, MS_BIND | MS_REC, NULL) != 0)
        return complain("%s: %s", dir, strerror(errno));
    return true;
}

/* The node's own root on a private tmpfs: links copied, everything else bound. */
static bool root_of_node(void)
{
    char from[PATH_MAX], to[PATH_MAX], link[PATH_MAX];
    struct dirent *d;
    struct stat st;
    if (mount("edf", NEW_ROOT, "tmpfs", 0, LAYER_OPTIONS) != 0)
        return complain("tmpfs: %s", strerror(errno));
    DIR *root = opendir("/");
    while (root != NULL && (d = readdir(root)) != NULL) {
        snprintf(from, sizeof from, "/%s", d->d_name);
        snprintf(to, sizeof to, "%s/%s", NEW_ROOT, d->d_name);
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 || lstat(from, &st) != 0)
            continue;
        if (S_ISLNK(st.st_mode)) {
            ssize_t n = readlink(from, link, sizeof link - 1);
            link[n > 0 ? n : 0] = '\0';
            if (symlink(link, to) != 0)
                return complain("%s: %s", to, strerror(errno));
        } else if (strcmp(from, NEW_ROOT) == 0) {
            mkdir(to, 0755);
        } else if (S_ISDIR(st.st_mode) && !bind_into_root(from)) {
            return false;
        }
    }
    if (root != NULL)
        closedir(root);
    return true;
}

/* The image with a private layer above it, and the node's /proc, /sys and /dev in it. */
static bool root_of_image(const struct edf *e)
{
    static const char *const shared[] = {"/proc", "/sys", "/dev"};
    char options[PATH_MAX], image[64];
    struct stat st;
    int fd = open_as_user(e->image, O_PATH);
    if (fd < 0)
        return complain("No such file or directory: %s", e->image);
    if (fstat(fd, &st) != 0 || !S_ISDIR(st.st_mode))
        return complain("Not a root file system: %s", e->image);
    snprintf(image, sizeof image, "/proc/self/fd/%d", fd);
    if (mount("edf", NEW_ROOT, "tmpfs", 0, LAYER_OPTIONS) != 0 || mkdir(NEW_ROOT "/upper", 0755) != 0 ||
        mkdir(NEW_ROOT "/work", 0755) != 0 || mkdir(NEW_ROOT "/lower", 0755) != 0)
        return complain("tmpfs: %s", strerror(errno));
    if (chown(NEW_ROOT "/upper", user_uid, user_gid) != 0 ||
        mount(image, NEW_ROOT "/lower", NULL, MS_BIND, NULL) != 0)
        return complain("%s: %s", e->image, strerror(errno));
    snprintf(options, sizeof options, "lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", NEW_ROOT, NEW_ROOT,
             NEW_ROOT);
    if (mount("edf", NEW_ROOT, "overlay", 0, options) != 0)
        return complain("overlay: %s", strerror(errno));
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (!bind_into_root(shared[i]))
            return false;
    return true;
}

static bool build(const struct edf *e)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return complain("mount namespace: %s", strerror(errno));
    if (!(e->image != NULL && *e->image != '\0' ? root_of_image(e) : root_of_node()))
        return false;
    for (int i = 0; i < e->mounts.count; i++)
        if (!add_mount(e->mounts.item[i]))
            return false;
    if (!e->writable && e->image != NULL && *e->image != '\0' &&
        mount(NULL, NEW_ROOT, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) != 0)
        return complain("read-only root: %s", strerror(errno));
    if (chdir(NEW_ROOT) != 0 || syscall(SYS_pivot_root, ".", ".") != 0 || umount2(".", MNT_DETACH) != 0 ||
        chdir("/") != 0)
        return complain("pivot_root: %s", strerror(errno));
    return true;
}

/* --- hooks ------------------------------------------------------------------------------------------------------ */

static bool wanted, broken;
static int container = -1;
static struct edf here = {.writable = true};

static int chosen(int val, const char *arg, int remote)
{
    struct edf e = {.writable = true};
    char *path, *flat;
    (void)val;
    wanted = true;
    if (remote)
        return ESPANK_SUCCESS; /* the flat form tells */
    if (!locate(arg != NULL ? arg : "", &path) || !read_edf(path, 1, &e)) {
        slurm_error("pyxis: edf: %s", complaint);
        return ESPANK_ERROR;
    }
    flat = flatten(&e);
    setenv(TRAVELS_IN, flat, 1);
    free(flat);
    return ESPANK_SUCCESS;
}

static struct spank_option option = {
    .name = "environment",
    .arginfo = "EDF",
    .usage = "run the tasks in the environment that the environment definition file EDF describes",
    .has_arg = 1,
    .val = 0,
    .cb = chosen,
};

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    (void)ac;
    (void)av;
    spank_context_t c = spank_context();
    if (c != S_CTX_LOCAL && c != S_CTX_ALLOCATOR && c != S_CTX_REMOTE)
        return ESPANK_SUCCESS;
    return spank_option_register(sp, &option);
}

/* Once per step and node, as root, before any task is there. */
int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
    static char flat[1 << 20];
    int report[2], release[2], status;
    char path[64];
    ssize_t n;
    (void)ac;
    (void)av;

    if (!wanted || spank_context() != S_CTX_REMOTE)
        return ESPANK_SUCCESS;
    if (spank_getenv(sp, TRAVELS_IN, flat, sizeof flat) != ESPANK_SUCCESS) {
        broken = !complain("%s is missing from the environment of the step", TRAVELS_IN);
        return ESPANK_SUCCESS;
    }
    unflatten(flat, &here);
    spank_get_item(sp, S_JOB_UID, &user_uid);
    spank_get_item(sp, S_JOB_GID, &user_gid);
    if (pipe2(report, O_CLOEXEC) != 0 || pipe2(release, O_CLOEXEC) != 0) {
        broken = !complain("pipe: %s", strerror(errno));
        return ESPANK_SUCCESS;
    }
    /* A child builds the namespace and stays until we hold it. */
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(release[1]);
        if (!build(&here)) {
            (void)!write(report[1], complaint, strlen(complaint) + 1);
            _exit(1);
        }
        (void)!write(report[1], "", 1);
        (void)!read(release[0], &byte, 1);
        _exit(0);
    }
    close(report[1]);
    close(release[0]);
    n = child > 0 ? read(report[0], complaint, sizeof complaint - 1) : -1;
    if (n != 1) {
        broken = true;
        if (n < 1)
            complain("the container's first process died");
    } else {
        snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)child);
        container = open(path, O_RDONLY | O_CLOEXEC);
        broken = container < 0;
    }
    close(release[1]);
    close(report[0]);
    if (child > 0)
        waitpid(child, &status, 0);
    return ESPANK_SUCCESS;
}

/* The task still goes to the job's own directory on the node before it joins, so joining waits for task_init. */
int slurm_spank_task_init_privileged(spank_t sp, int ac, char **av)
{
    (void)sp;
    (void)ac;
    (void)av;
    if (wanted && !broken && prctl(PR_SET_KEEPCAPS, 1) != 0)
        broken = !complain("capabilities: %s", strerror(errno));
    return ESPANK_SUCCESS;
}

static bool set_capabilities(uint32_t effective, bool keep)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    data[0].effective = effective;
    data[0].permitted = keep ? effective : 0;
    return syscall(SYS_capset, &header, data) == 0;
}

static bool join(void)
{
    char cwd[PATH_MAX];
    bool image = here.image != NULL && *here.image != '\0';
    if (getcwd(cwd, sizeof cwd) == NULL)
        strcpy(cwd, "/");
    if (!set_capabilities(1u << CAP_SYS_ADMIN | 1u << CAP_SYS_CHROOT, true) || setns(container, CLONE_NEWNS) != 0)
        return complain("joining the container: %s", strerror(errno));
    if (!set_capabilities(0, false) || prctl(PR_SET_KEEPCAPS, 0) != 0)
        return complain("capabilities: %s", strerror(errno));
    /* Without an image the step stays where it was. */
    if (image || chdir(cwd) != 0)
        (void)!chdir("/");
    if (here.workdir != NULL && *here.workdir != '\0' && chdir(here.workdir) != 0)
        return complain("No such file or directory: %s (workdir: %s)", here.workdir, strerror(errno));
    return true;
}

int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
    (void)ac;
    (void)av;
    if (!wanted)
        return ESPANK_SUCCESS;
    if (broken || !join()) {
        slurm_error("pyxis: container start failed with error code: 1");
        slurm_error("pyxis: printing enroot log file:");
        slurm_error("pyxis:     [ERROR] %s", complaint);
        slurm_error("pyxis: couldn't start container");
        return -1; /* Slurm prints the number, and pyxis's is -1 */
    }
    spank_unsetenv(sp, TRAVELS_IN);
    for (int i = 0; i < here.env.count; i++) {
        char *eq = strchr(here.env.item[i], '=');
        *eq = '\0';
        if (eq[1] != '\0')
            spank_setenv(sp, here.env.item[i], eq + 1, 1);
        else
            spank_unsetenv(sp, here.env.item[i]);
        *eq = '=';
    }
    return ESPANK_SUCCESS;
}
