/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation in a transport fails in turn. */
#define _GNU_SOURCE
#include "base/realtime.h"
#include "runtime/transport/stream.h"
#include "runtime/transport/transport.h"
#include "runtime/transport/wire_format.h"
#include "test.h"

#include "fail_alloc.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* A message each way, small and large, with the receive posted first and last.
 */
static lh_status exchange(lhi_net *a, lhi_net *b, lh_error *err)
{
    static char out[40000], in[40000];
    static const size_t sizes[] = {10, 40000};
    lh_status status = LH_OK;
    for (int i = 0; i < 4 && status == LH_OK; i++) {
        lhi_net_op send = {0}, receive = {0};
        size_t n = sizes[i / 2];
        if (i % 2)
            status = lhi_net_receive(b, 0, 1, in, n, &receive, err);
        if (status == LH_OK)
            status = lhi_net_send(a, 1, 1, out, n, 0, lhi_now_ns(),
                                  LHI_NET_NO_TURN, &send, err);
        if (status == LH_OK && i % 2 == 0)
            status = lhi_net_receive(b, 0, 1, in, n, &receive, err);
        if (status == LH_OK)
            status = lhi_net_wait(b, &receive, 0, err);
        if (status == LH_OK)
            status = lhi_net_wait(a, &send, 0, err);
        if (status != LH_OK) { /* releases both operations */
            lhi_net_abort(a, "out of memory");
            lhi_net_wait(a, &send, 0, NULL);
            lhi_net_wait(b, &receive, 0, NULL);
        }
    }
    return status;
}

static lh_status two_threads(lh_error *err)
{
    const lhi_net_link link = {100, 100, 0, LHI_LINK_UNSHARED};
    lhi_net *nets[2];
    lh_status status = lhi_net_inproc(2, 1, &link, nets, err);
    if (status != LH_OK)
        return status;
    status = exchange(nets[0], nets[1], err);
    lhi_net_close(nets[0]);
    lhi_net_close(nets[1]);
    return status;
}

static void inproc(void)
{
    lh_error err = {0};
    FAIL_EACH_ALLOC(status = two_threads(&err));
}

/* Wherever it fails after the start, the peer receives an orderly shutdown. */
static lh_status one_stream(lh_error *err)
{
    int pair[2];
    lhi_net *net = NULL;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        abort();
    int fds[2] = {-1, pair[0]};
    lhi_stream_options o = {.name = "test", .n_ranks = 2, .fds = fds};
    lh_status status = lhi_net_stream(&o, &net, err);
    if (status == LH_OK) {
        unsigned char bytes[LHI_FRAME_BYTES + 1];
        lhi_frame f;
        lhi_net_close(net);
        CHECK_INT(read(pair[1], bytes, sizeof bytes), LHI_FRAME_BYTES);
        CHECK_OK(lhi_frame_read(bytes, &f, err), *err);
        CHECK_INT(f.kind, LHI_FRAME_BYE);
    } else {
        CHECK_INT(status, LH_ENOMEM);
        close(pair[0]);
    }
    close(pair[1]);
    return status;
}

static void stream(void)
{
    lh_error err = {0};
    unsigned n_failed = 0;
    for (int64_t n = 0;; n++) {
        fail_alloc_hit = false;
        fail_alloc_after = n;
        n_failed += one_stream(&err) != LH_OK;
        fail_alloc_after = -1;
        if (!fail_alloc_hit)
            break;
    }
    CHECK(n_failed >= 4);
}

static lh_status nothing(lhi_net *net, void *context, char **result,
                         size_t *size, lh_error *err)
{
    (void)net, (void)context, (void)result, (void)size, (void)err;
    return LH_OK;
}

/* In the launcher; each rank runs the same allocations and fails, too. */
static void local(void)
{
    lh_error err = {0};
    FAIL_EACH_ALLOC(status =
                        lhi_local_run(2, 0, NULL, nothing, NULL, NULL, &err));
}

int main(void)
{
    RUN(inproc);
    RUN(stream);
    RUN(local);
    return test_summary();
}
