/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the ranks of a run, as threads or as processes, and puts together
 * what came of it. */
#include "engine/job.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_MESSAGE_BYTES = 65536, DEFAULT_SLIP_NS = 20000000 };

/* --- links -------------------------------------------------------------------
 */

lh_status lhi_job_links(const lhi_job *job, lhi_net_link *links, lh_error *err)
{
    const lh_pipeline *p = job->pipeline;
    bool *seen = calloc((size_t)p->n_resources + 1, sizeof *seen);
    lh_status status = seen ? LH_OK : lhi_fail_nomem(err);
    for (uint32_t i = 0; status == LH_OK && i < p->n_links; i++) {
        const lh_link *l = &p->links[i];
        lhi_net_link *to = &links[p->link_resources[i]];
        if (seen[p->link_resources[i]] && (to->latency_ns != l->latency_ns ||
                                           to->transfer_ns != l->transfer_ns))
            status = lhi_fail(err, LH_EUNSUPPORTED,
                              "link '%.60s' has another latency or transfer "
                              "between ranks %" PRIu32 " and %" PRIu32
                              " than before; to be emulated, links that share "
                              "a name must be alike",
                              l->name, l->from, l->to);
        *to = (lhi_net_link){l->latency_ns, l->transfer_ns, 0};
        seen[p->link_resources[i]] = true;
    }
    free(seen);
    return status;
}

/* --- ranks as threads
 * ---------------------------------------------------------- */

typedef struct thread {
    const lhi_job *job;
    lhi_net *net;
    pthread_t id;
    char *result;
    size_t size;
    lhi_left left;
    lh_status status;
    lh_error err;
} thread;

static void *thread_main(void *of)
{
    thread *t = of;
    t->status =
        lhi_job_rank(t->job, t->net, &t->result, &t->size, &t->left, &t->err);
    return NULL;
}

/* The first cause: what the transport knows of it, or a rank's own error. */
static lh_status first_failure(const thread *threads, uint32_t n, lh_error *err)
{
    lh_status status = LH_OK;
    const char *why = lhi_net_failure(threads[0].net);
    for (uint32_t i = 0; i < n; i++)
        if (threads[i].status != LH_OK &&
            (status == LH_OK || status == LH_EIO)) {
            status = threads[i].status; /* not what the others were told */
            if (err)
                *err = threads[i].err;
        }
    if (status == LH_OK)
        return LH_OK;
    return lhi_fail(err, status, "%s", why ? why : "a rank failed");
}

static lh_status start_threads(thread *threads, uint32_t n, lh_error *err)
{
    lh_status status = LH_OK;
    uint32_t started = 0;
    for (; started < n; started++)
        if (pthread_create(&threads[started].id, NULL, thread_main,
                           &threads[started]) != 0) {
            status = lhi_fail(err, LH_EIO,
                              "cannot start a thread for rank "
                              "%" PRIu32,
                              started);
            lhi_net_abort(threads[0].net, "cannot start a thread");
            break;
        }
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i].id, NULL);
    return status == LH_OK ? first_failure(threads, n, err) : status;
}

static lh_status run_threads(const lhi_job *job, const lhi_net_link *links,
                             char **text, size_t *size, lh_error *err)
{
    uint32_t n = job->exec->n_ranks * job->n_replicas;
    thread *threads = calloc(n, sizeof *threads);
    lhi_net **nets = calloc(n, sizeof *nets);
    lh_status status = threads && nets ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = lhi_net_inproc(n, job->exec->n_links, links, nets, err);
    if (status == LH_OK) {
        for (uint32_t i = 0; i < n; i++) {
            threads[i].job = job;
            threads[i].net = nets[i];
        }
        status = start_threads(threads, n, err);
        for (uint32_t i = 0; i < n; i++)
            lhi_net_close(nets[i]);
        for (uint32_t i = 0; i < n; i++)
            lhi_job_leave(&threads[i].left);
        *text = threads[0].result;
        *size = threads[0].size;
    }
    free(threads);
    free(nets);
    return status;
}

/* --- all of it
 * ------------------------------------------------------------------ */

static lh_status check_options(const lh_train_options *options,
                               lh_train_options *out, lh_error *err)
{
    *out = (lh_train_options){.size = sizeof *out};
    if (options && options->size != sizeof *options)
        return lhi_fail(err, LH_EINVAL, "lh_train_options.size is %zu, not %zu",
                        options->size, sizeof *options);
    if (options)
        *out = *options;
    if (!out->transport)
        out->transport = "inproc";
    if (strcmp(out->transport, "inproc") != 0)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "there is no transport '%.40s'; inproc is one",
                        out->transport);
    if (out->steps == 0)
        out->steps = 1;
    if (out->message_bytes == 0)
        out->message_bytes = DEFAULT_MESSAGE_BYTES;
    if (out->slip_ns == 0)
        out->slip_ns = DEFAULT_SLIP_NS;
    return LH_OK;
}

static lh_status run(const lhi_job *job, lh_train_result **out, lh_error *err)
{
    uint32_t n = job->pipeline->n_resources;
    lhi_net_link *links = calloc((size_t)n + 1, sizeof *links);
    char *text = NULL;
    size_t size = 0;
    lh_status status = links ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = lhi_job_links(job, links, err);
    if (status == LH_OK)
        status = run_threads(job, links, &text, &size, err);
    if (status == LH_OK || (status == LH_ECANCELED && text))
        status = lhi_outcome_read(job, text, size, out, err);
    lh_text_free(text);
    free(links);
    return status;
}

lh_status lh_train_timed(const lh_pipeline *pipeline, const lh_exec *exec,
                         const lh_train_options *options, lh_train_result **out,
                         lh_error *err)
{
    lhi_job job = {.pipeline = pipeline,
                   .exec = exec,
                   .n_replicas = 1,
                   .shared_clock = true,
                   .emulates = true};
    if (lh_pipeline_n_devices(pipeline) != exec->n_ranks)
        return lhi_fail(err, LH_EINVAL,
                        "the execution plan is of another pipeline");
    LHI_TRY(check_options(options, &job.o, err));
    return run(&job, out, err);
}
