/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded library that delays the ranks of a run, for tests that must connect
 * to a rank before the other ranks do. Rank 0 writes its listening port to the
 * file `port` in the folder $HOLD_DOOR. All ranks then wait until the file `go`
 * exists. Delays only calls by the program itself, not those by MPI. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef int listen_call(int fd, int backlog);
typedef int connect_call(int fd, const struct sockaddr *to, socklen_t size);

static bool by_the_program(const void *caller)
{
    Dl_info info;
    if (!getenv("HOLD_DOOR") || !dladdr(caller, &info) || !info.dli_fname)
        return false;
    const char *name = strrchr(info.dli_fname, '/');
    name = name ? name + 1 : info.dli_fname;
    return strncmp(name, "longhaul", 8) == 0 ||
           strncmp(name, "liblonghaul", 11) == 0;
}

static bool is_first(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    return rank && strcmp(rank, "0") == 0;
}

static void path_of(const char *name, char *out, size_t room)
{
    snprintf(out, room, "%s/%s", getenv("HOLD_DOOR"), name);
}

static void await_go(void)
{
    char path[500];
    path_of("go", path, sizeof path);
    while (access(path, F_OK) != 0)
        usleep(5000);
}

static void say_port(int fd)
{
    struct sockaddr_in a;
    socklen_t size = sizeof a;
    char part[500], path[500];
    path_of("part", part, sizeof part);
    path_of("port", path, sizeof path);
    FILE *f = fopen(part, "w");
    if (!f || getsockname(fd, (struct sockaddr *)&a, &size))
        abort();
    fprintf(f, "%d\n", ntohs(a.sin_port));
    fclose(f);
    rename(part, path);
}

int listen(int fd, int backlog)
{
    listen_call *next;
    *(void **)&next = dlsym(RTLD_NEXT, "listen");
    int got = next(fd, backlog);
    if (got == 0 && is_first() && by_the_program(__builtin_return_address(0))) {
        say_port(fd);
        await_go();
    }
    return got;
}

int connect(int fd, __CONST_SOCKADDR_ARG to, socklen_t size)
{
    connect_call *next;
    *(void **)&next = dlsym(RTLD_NEXT, "connect");
    if (!is_first() && to.__sockaddr__->sa_family == AF_INET &&
        by_the_program(__builtin_return_address(0)))
        await_go();
    return next(fd, to.__sockaddr__, size);
}
