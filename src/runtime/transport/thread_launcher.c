/* SPDX-License-Identifier: Apache-2.0 */
/* Runs ranks as threads of the caller's process until all have ended. */
#include "runtime/transport/transport.h"

#include "base/fail.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A rank's thread. */
typedef struct rank_thread {
    pthread_t thread;
    lhi_net *net;
    lhi_rank_main *rank_main;
    void *context;
    lhi_rank_result *result;
    lh_status status;
    lh_error err;
} rank_thread;

/* Main function for a rank's thread: runs the rank `of` and stores its status
 * and result. */
static void *thread_main(void *of)
{
    rank_thread *r = of;
    lhi_rank_result result;
    r->status =
        lhi_rank_run(r->net, r->rank_main, r->context, &result, &r->err);
    if (r->result)
        *r->result = result;
    else
        free(result.text);
    return NULL;
}

/* Returns the failed run's status and message: those of the rank that caused
 * the failure, rather than of ranks that ended because of it. */
static lh_status summarise_failure(const rank_thread *ranks, uint32_t n,
                                   lh_error *err)
{
    const rank_thread *worst = NULL;
    for (uint32_t i = 0; i < n; i++)
        if (ranks[i].status != LH_OK &&
            (!worst || (worst->status == LH_EIO && ranks[i].status != LH_EIO)))
            worst = &ranks[i];
    if (!worst)
        return LH_OK;
    return lhi_fail(err, worst->status, "%s", worst->err.text);
}

/* Starts a thread per rank and waits for all; a thread that cannot start fails
 * the run. */
static void start_and_join(rank_thread *ranks, uint32_t n)
{
    uint32_t n_started = 0;
    while (n_started < n) {
        rank_thread *r = &ranks[n_started];
        int error = pthread_create(&r->thread, NULL, thread_main, r);
        if (error) {
            r->status = lhi_fail(&r->err, LH_EIO,
                                 "cannot start a thread for a rank: %s",
                                 strerror(error));
            lhi_net_abort(r->net, r->err.text);
            break;
        }
        n_started++;
    }
    /* Endpoints without a thread are closed here, since no one waits for them.
     */
    for (uint32_t i = n_started; i < n; i++)
        lhi_net_close(ranks[i].net);
    for (uint32_t i = 0; i < n_started; i++)
        pthread_join(ranks[i].thread, NULL);
}

lh_status lhi_inproc_run(uint32_t n, uint32_t n_links,
                         const lhi_net_link *links, lhi_rank_main *rank_main,
                         void *context, lhi_rank_result *results, lh_error *err)
{
    lhi_net **nets = calloc(n ? n : 1, sizeof *nets);
    rank_thread *ranks = calloc(n ? n : 1, sizeof *ranks);
    lh_status status = nets && ranks
                           ? lhi_net_inproc(n, n_links, links, nets, err)
                           : lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n && status == LH_OK; i++)
        ranks[i] = (rank_thread){.net = nets[i],
                                 .rank_main = rank_main,
                                 .context = context,
                                 .result = results ? &results[i] : NULL};
    if (status == LH_OK) {
        start_and_join(ranks, n);
        status = summarise_failure(ranks, n, err);
    }
    free(ranks);
    free(nets);
    return status;
}
